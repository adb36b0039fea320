//go:build unix

package checker

import (
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// checkNotice holds against the bound when holders knew that they had lost: after
// a fault that cut them off, and after somebody else was granted the key. The
// time that a process did not run, and that of a transaction on the holding
// session, in which there is no heartbeat, don't count.
func (j *judge) checkNotice() {
	for _, key := range j.keys {
		holds := j.holds[key]
		for i, h := range holds {
			for _, f := range j.faults {
				if hits(f, h) && h.granted < f.Since && h.end() > f.Since {
					j.checkNoticeOf(h, f.Time, f.How)
				}
			}
			for _, later := range holds[i+1:] {
				if later.granted >= h.end() {
					break
				}
				if later.token > h.token {
					j.checkNoticeOf(h, later.granted, "grant to "+later.op)
				}
			}
		}
	}
}

// checkNoticeOf is for a hold that was certainly lost at the given time.
func (j *judge) checkNoticeOf(h *hold, at history.Time, why string) {
	at = max(at, j.untilOffSession(h, at))
	end := min(h.end(), j.last)
	took := max(0, end.Sub(at)-j.stalled(h.worker, h.life, at, end))
	if h.lost && h.done == end {
		j.notices++
		j.worstNotice = max(j.worstNotice, took)
	}
	if took > j.limits.Notice+j.limits.Slack {
		j.blame(Notice, h.key, end, "key %s: %s knew only %s after the %s that it had lost; the bound is %s",
			h.key, h.op, took.Round(time.Millisecond), why, j.limits.Notice)
	}
}

// untilOffSession is the end of the last transaction on the holding session that
// was open at the given time or began later, or 0.
func (j *judge) untilOffSession(h *hold, at history.Time) (end history.Time) {
	for _, w := range j.writes[h.key] {
		if w.hold == h.op && w.onSession && w.end > at && w.began < h.end() {
			end = max(end, min(w.end, j.last))
		}
	}
	return end
}
