//go:build unix

package checker

import (
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// checkContent compares what is there at the end with what was said to be.
func (j *judge) checkContent(key string) {
	end := j.end[key]
	if end.Older != j.start[key].Older {
		j.blame(Content, key, j.last, "key %s: %d earlier rows, and there were %d", key, end.Older, j.start[key].Older)
	}
	for _, w := range j.writes[key] {
		there := contains(end, w.op)
		switch {
		case w.outcome == history.OK && !there && j.mayBeLost(w):
			j.lostWrites++
		case w.outcome == history.OK && !there:
			j.blame(Content, key, w.end, "key %s: write %s was acknowledged and is not there", key, w.op)
		case w.outcome != history.OK && w.outcome != history.Unknown && there:
			j.blame(Content, key, w.end, "key %s: write %s is there, and its outcome was %q", key, w.op, w.outcome)
		}
	}
	j.checkRows(key, end)
	j.checkLastSwap(key, end)
	j.checkMark(key, end)
}

// mayBeLost: it was acknowledged when the standby did not follow any more.
func (j *judge) mayBeLost(w *write) bool {
	for _, p := range j.promotions {
		if p.Lossy && w.era < p.Era && w.end > p.Safe && !contains(p.tables[w.key], w.op) {
			return true
		}
	}
	return false
}

// checkRows looks for rows that nobody has written like that.
func (j *judge) checkRows(key string, t *history.Tables) {
	seen := make(map[string]bool)
	for _, row := range t.Rows {
		w := j.writeByOp[row.Op]
		switch {
		case seen[row.Op]:
			j.blame(Content, key, w.commit, "key %s: write %s is there twice", key, row.Op)
		case w == nil || w.commit == 0 || w.key != key:
			j.blame(Content, key, j.last, "key %s: row %d is of %s, which nobody has committed", key, row.ID, row.Op)
		case row.Token != w.token || row.Worker != w.worker || row.Swap != w.swap:
			j.blame(Content, key, w.commit, "key %s: row %d is not what %s has written", key, row.ID, row.Op)
		}
		seen[row.Op] = true
	}
}

// checkLastSwap: register and journal are written in one transaction.
func (j *judge) checkLastSwap(key string, t *history.Tables) {
	last := j.start[key].Register
	for _, row := range t.Rows {
		if row.Swap {
			last = row.Op
		}
	}
	if t.Register != last {
		j.blame(Content, key, j.last, "key %s: the register is of %q, and the journal's last such write is %q", key, t.Register, last)
	}
}

// checkMark: there is one, and it is durable before the holder learns of the grant.
func (j *judge) checkMark(key string, t *history.Tables) {
	if t.Marks > 1 {
		j.blame(Content, key, j.last, "key %s: there are %d marks", key, t.Marks)
	}
	for _, h := range j.holds[key] {
		if h.token > t.Mark && !j.mayBeUnknown(h) {
			j.blame(Content, key, h.granted, "key %s: grant %s has token %d, and the mark is only %d at the end", key, h.op, h.token, t.Mark)
		}
	}
}

func (j *judge) mayBeUnknown(h *hold) bool {
	for _, p := range j.promotions {
		if p.Lossy && h.granted > p.Safe && h.asked < p.Time {
			return true
		}
	}
	return false
}

// checkPromotions compares what a new primary has with what was there before.
func (j *judge) checkPromotions() {
	for i, p := range j.promotions {
		for _, key := range j.keys {
			later := j.end[key]
			if i+1 < len(j.promotions) {
				later = j.promotions[i+1].tables[key]
			}
			for _, row := range p.tables[key].Rows {
				if !contains(later, row.Op) {
					j.blame(Content, key, p.Time, "key %s: write %s was there after the promotion and is not later", key, row.Op)
				}
			}
			j.checkRows(key, p.tables[key])
			j.checkLastSwap(key, p.tables[key])
		}
		if p.Lossy {
			j.checkOnlyTheEndIsLost(p)
		}
	}
}

// checkOnlyTheEndIsLost: what a standby has is what the primary had at some
// moment. If it has a write, it has what was acknowledged before that.
func (j *judge) checkOnlyTheEndIsLost(p promotion) {
	survivor := (*write)(nil) // whose commit was asked for last
	for _, key := range j.keys {
		for _, w := range j.writes[key] {
			if w.era < p.Era && w.commit != 0 && contains(p.tables[key], w.op) && (survivor == nil || w.commit > survivor.commit) {
				survivor = w
			}
		}
	}
	if survivor == nil {
		return
	}
	for _, key := range j.keys {
		for _, w := range j.writes[key] {
			if w.outcome == history.OK && w.era < p.Era && w.end < survivor.commit && !contains(p.tables[key], w.op) && !j.lostBefore(w, p) {
				j.blame(Content, key, w.end, "key %s: the failover lost write %s and kept the later %s", key, w.op, survivor.op)
			}
		}
	}
}

// lostBefore: an earlier failover had lost it.
func (j *judge) lostBefore(w *write, p promotion) bool {
	for _, earlier := range j.promotions {
		if earlier.Era < p.Era && earlier.Lossy && w.era < earlier.Era && w.end > earlier.Safe {
			return true
		}
	}
	return false
}
