//go:build unix

package checker

import (
	"math"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// never is later than all.
const never = history.Time(math.MaxInt64)

// hold is one grant, from the call to what became of it.
type hold struct {
	op, key, how string
	worker, life int
	token        int64
	pid          uint32
	redis        bool // the lock is one in Redis
	asked        history.Time
	limit        time.Duration
	answered     history.Time // the call, either way
	granted      history.Time // 0: it was not
	done         history.Time // when Done was closed
	lost         bool         // by a loss
	unlocking    history.Time
	unlocked     history.Time
	outcome      history.Outcome // of the unlock
	died         history.Time    // when its process was killed
}

// end is when the holder stopped to believe that it holds.
func (h *hold) end() history.Time {
	end := never
	for _, t := range []history.Time{h.done, h.unlocking, h.died} {
		if t != 0 {
			end = min(end, t)
		}
	}
	return end
}

// isClean reports whether the server said at the unlock that the lock had been
// held all the time.
func (h *hold) isClean() bool { return h.outcome == history.OK }

// write is one transaction.
type write struct {
	op, key, hold      string
	worker, life       int
	token              int64
	began, commit, end history.Time
	outcome            history.Outcome
	swap, onSession    bool
	was                string
	era                int
}

// read is one of a register, which succeeded.
type read struct {
	op, key    string
	began, end history.Time
	was        string
	era        int
}

// promotion is that of a standby. What was there before is the era below its
// own.
type promotion struct {
	history.Event
	tables map[string]*history.Tables
}

// run is a history, put in order.
type run struct {
	keys       []string
	holds      map[string][]*hold  // granted, by key, in the order of the answers
	byOp       map[string]*hold    // asked for
	writes     map[string][]*write // by key, in the order of their begins
	writeByOp  map[string]*write
	reads      map[string][]*read
	faults     []history.Event
	stalls     []history.Event
	promotions []promotion
	start, end map[string]*history.Tables
	last       history.Time
	others     []history.Event // what the rule "left" is about
}

func newRun(events []history.Event) *run {
	r := &run{
		holds: make(map[string][]*hold), byOp: make(map[string]*hold), writes: make(map[string][]*write),
		writeByOp: make(map[string]*write), reads: make(map[string][]*read),
		start: make(map[string]*history.Tables), end: make(map[string]*history.Tables),
	}
	reads := make(map[string]history.Time)
	for _, e := range events {
		r.last = max(r.last, e.Time)
		switch e.Kind {
		case history.LockBegin, history.LockEnd, history.Done, history.Unlock, history.UnlockEnd:
			r.addToHold(e)
		case history.WriteBegin, history.Commit, history.WriteEnd:
			r.addToWrite(e)
		case history.ReadBegin:
			reads[e.Op] = e.Time
		case history.ReadEnd:
			if e.Outcome == history.OK {
				r.reads[e.Key] = append(r.reads[e.Key], &read{op: e.Op, key: e.Key, began: reads[e.Op], end: e.Time, was: e.Was, era: e.Era})
			}
		case history.Content:
			r.addContent(e)
		case history.Promotion:
			r.promotions = append(r.promotions, promotion{Event: e, tables: make(map[string]*history.Tables)})
		case history.Fault:
			r.faults = append(r.faults, e)
		case history.Stall:
			r.stalls = append(r.stalls, e)
		case history.Death:
			r.kill(e)
		default:
			r.others = append(r.others, e)
		}
	}
	for _, holds := range r.holds {
		slices.SortFunc(holds, func(a, b *hold) int { return int(a.granted.Sub(b.granted)) })
	}
	return r
}

func (r *run) addToHold(e history.Event) {
	h := r.byOp[e.Op]
	if h == nil {
		h = &hold{op: e.Op, key: e.Key, how: e.How, worker: e.Worker, life: e.Life}
		r.byOp[e.Op] = h
	}
	switch e.Kind {
	case history.LockBegin:
		h.asked, h.limit = e.Time, e.Limit
	case history.LockEnd:
		h.answered = e.Time
		if e.Outcome == history.OK {
			h.granted, h.token, h.pid, h.redis = e.Time, e.Token, e.PID, e.Redis
			r.holds[e.Key] = append(r.holds[e.Key], h)
		}
	case history.Done:
		h.done, h.lost = e.Time, e.Lost
	case history.Unlock:
		h.unlocking = e.Time
	case history.UnlockEnd:
		h.unlocked, h.outcome = e.Time, e.Outcome
	default:
		panic("BUG: checker: not of a hold: " + string(e.Kind))
	}
}

func (r *run) addToWrite(e history.Event) {
	w := r.writeByOp[e.Op]
	if w == nil {
		w = &write{
			op: e.Op, key: e.Key, hold: e.Hold, worker: e.Worker, life: e.Life, token: e.Token,
			swap: e.Swap, onSession: e.OnSession, outcome: history.Failed, end: never,
		}
		r.writeByOp[e.Op] = w
		r.writes[e.Key] = append(r.writes[e.Key], w)
	}
	switch e.Kind {
	case history.WriteBegin:
		w.began = e.Time
	case history.Commit:
		w.commit, w.was, w.era = e.Time, e.Was, e.Era
		w.outcome = history.Unknown // until its end is told
	case history.WriteEnd:
		w.end, w.outcome = e.Time, e.Outcome
	default:
		panic("BUG: checker: not of a write: " + string(e.Kind))
	}
}

// addContent keeps the first content of each key as the start's, the last as the
// end's, and the first after a promotion with that.
func (r *run) addContent(e history.Event) {
	if _, ok := r.start[e.Key]; !ok {
		r.keys = append(r.keys, e.Key)
		r.start[e.Key] = e.Content
	}
	r.end[e.Key] = e.Content
	if n := len(r.promotions); n > 0 && r.promotions[n-1].tables[e.Key] == nil {
		r.promotions[n-1].tables[e.Key] = e.Content
	}
}

func (r *run) kill(e history.Event) {
	for _, h := range r.byOp {
		if h.worker == e.Worker && h.life == e.Life && h.unlocked == 0 {
			h.died = e.Time
		}
	}
}

// stalled is for how long a process did not run between two times.
func (r *run) stalled(worker, life int, from, to history.Time) (sum time.Duration) {
	for _, s := range r.stalls {
		if s.Worker == worker && s.Life == life {
			sum += max(0, min(to, s.Time).Sub(max(from, s.Since)))
		}
	}
	return sum
}

// contains finds a write in a table.
func contains(t *history.Tables, op string) bool {
	return t != nil && slices.ContainsFunc(t.Rows, func(row history.Row) bool { return row.Op == op })
}
