//go:build unix

package checker

import (
	"slices"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// checkStale looks for writes that the fence should have kept out, and for those
// that it should not have. A lock call has returned only after the earlier
// holders' transactions had ended: so what asks for its commit later comes too
// late.
func (j *judge) checkStale(key string) {
	for _, w := range j.writes[key] {
		switch w.outcome {
		case history.OK:
			j.checkAccepted(w)
		case history.Unknown:
			if contains(j.end[key], w.op) {
				j.checkAccepted(w)
			}
		case history.Stale:
			if h := j.byOp[w.hold]; h != nil && h.isClean() && w.end < h.unlocking && !j.isOutdated(h, w) {
				j.blame(Stale, key, w.end, "key %s: write %s was refused as stale, and its holder %s held until its unlock", key, w.op, h.op)
			}
		case history.Foreign:
			if !j.mayBeForgotten(w) {
				j.blame(Stale, key, w.end, "key %s: write %s with token %d was refused as if that had never been issued", key, w.op, w.token)
			}
		case history.Failed:
			// it was not for the fence to decide
		}
	}
	j.checkRowOrder(key, j.end[key])
}

// isOutdated: a promotion makes tokens of before stale, and ends no lock in Redis.
func (j *judge) isOutdated(h *hold, w *write) bool {
	return h.redis && slices.ContainsFunc(j.promotions, func(p promotion) bool { return h.asked < p.Time && w.end > p.Since })
}

func (j *judge) checkAccepted(w *write) {
	for _, h := range j.holds[w.key] {
		if h.token > w.token && h.granted <= w.commit {
			j.blame(Stale, w.key, w.commit, "key %s: write %s was accepted with token %d, and %s had been granted with token %d before",
				w.key, w.op, w.token, h.op, h.token)
			return
		}
	}
}

// checkRowOrder goes by the server's own order of the rows.
func (j *judge) checkRowOrder(key string, t *history.Tables) {
	var before history.Row
	for _, row := range t.Rows {
		if row.Token < before.Token {
			j.blame(Stale, key, j.timeOf(row.Op), "key %s: row %d of %s has token %d, and row %d of %s before it has %d",
				key, row.ID, row.Op, row.Token, before.ID, before.Op, before.Token)
		}
		before = row
	}
}

func (j *judge) timeOf(op string) history.Time {
	if w := j.writeByOp[op]; w != nil {
		return w.commit
	}
	return j.last
}

// mayBeForgotten: a token of the end that an asynchronous failover lost is not
// known to the new primary.
func (j *judge) mayBeForgotten(w *write) bool {
	h := j.byOp[w.hold]
	for _, p := range j.promotions {
		if p.Lossy && h != nil && h.granted > p.Safe && w.end > p.Since {
			return true
		}
	}
	return false
}
