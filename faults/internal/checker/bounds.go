//go:build unix

package checker

import (
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// checkBounds looks at how long calls took, without the time that their process
// did not run.
func (j *judge) checkBounds() {
	for _, h := range j.byOp {
		if h.limit != 0 && h.answered != 0 {
			over := j.ran(h, h.asked, h.answered) - h.limit
			j.worstCall = max(j.worstCall, over)
			if over > j.limits.Slack {
				j.blame(Bound, h.key, h.answered, "key %s: the call %s of %s returned %s after its context had ended",
					h.key, h.op, h.how, over.Round(time.Millisecond))
			}
		}
		if h.unlocking != 0 && h.unlocked != 0 {
			took := j.ran(h, h.unlocking, h.unlocked)
			j.worstUnlock = max(j.worstUnlock, took)
			if took > j.limits.Unlock+j.limits.Slack {
				j.blame(Bound, h.key, h.unlocked, "key %s: the unlock of %s took %s; the bound is %s",
					h.key, h.op, took.Round(time.Millisecond), j.limits.Unlock)
			}
		}
	}
}

// ran is for how long a hold's process ran between two times.
func (j *judge) ran(h *hold, from, to history.Time) time.Duration {
	return to.Sub(from) - j.stalled(h.worker, h.life, from, to)
}
