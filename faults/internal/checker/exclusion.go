//go:build unix

package checker

import "github.com/pgadvisory/pgadvisory/faults/internal/history"

// checkExclusion looks at each two holders who believed at the same time that
// they hold. That is in order only where the earlier one had lost the lock.
func (j *judge) checkExclusion(key string) {
	holds := j.holds[key]
	for i, a := range holds {
		for _, b := range holds[i+1:] {
			if b.granted >= a.end() {
				break // they are in the order of the answers
			}
			j.overlaps++
			j.checkOverlap(a, b)
		}
	}
}

// checkOverlap is called with two grants, of which b was answered while a
// believed to hold. The one with the lower token was granted first.
func (j *judge) checkOverlap(a, b *hold) {
	first, second := a, b
	if a.token > b.token {
		first, second = b, a // b's answer came late
	}
	switch {
	case first == a && a.isClean():
		j.blame(Exclusion, a.key, b.granted, "key %s: %s was granted while %s held, which then unlocked in good order", a.key, b.op, a.op)
	case first == b && b.isClean():
		j.blame(Exclusion, a.key, b.granted, "key %s: %s held until its unlock, and %s with a later token had been granted before", a.key, b.op, a.op)
	case first.redis && !j.isHit(first, second.granted) && j.ran(first, max(a.granted, b.granted), min(first.end(), j.last)) > j.limits.Slack:
		j.blame(Exclusion, a.key, b.granted, "key %s: %s was granted while %s trusted its lease, and Redis had lost nothing", a.key, second.op, first.op)
	case !j.wasLost(first, second.granted):
		j.blame(Exclusion, a.key, b.granted, "key %s: %s was granted while %s held, and nothing explains a loss", a.key, second.op, first.op)
	}
}

// wasLost reports whether something says that a hold was lost: its own handle, or
// a fault before the given time.
func (j *judge) wasLost(h *hold, before history.Time) bool {
	return h.lost || h.outcome == history.Failed || j.isHit(h, before)
}

// isHit reports whether a fault cut off a hold before the given time.
func (j *judge) isHit(h *hold, before history.Time) bool {
	for _, f := range j.faults {
		// Its answer may have come after the fault: the time of the grant
		// itself is not known.
		if f.Since < before && f.Time > h.asked && hits(f, h) {
			return true
		}
	}
	return false
}

// hits reports whether a fault is one that cuts off a holder's session, or makes Redis lose
// its lock.
func hits(f history.Event, h *hold) bool {
	return f.Severs && f.Redis == h.redis && (f.Worker == 0 || f.Worker == h.worker) && (f.PID == 0 || f.PID == h.pid) && (!f.Only || f.Key == h.key)
}
