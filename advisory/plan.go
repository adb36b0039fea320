package advisory

import "fmt"

// step is what an acquirer does next.
type step uint8

const (
	stepFinish  step = iota // nobody waits whom it could serve
	stepConnect             // pin a connection
	stepProbe               // find out what its session is
	stepTry                 // ask with the prepared statement
	stepResume              // read the answer to that, which its caller has abandoned
	stepScript              // ask with a script that does not wait
	stepWait                // ask with a script that waits for a slice
	stepPoll                // pause, and ask whether it is worth while to wait
	stepRelease             // give the connection back: the grant is of no use
	stepGrant               // make the waiter the owner of the grant
	stepRefuse              // tell the waiter that there is no lock
)

// plan returns the next step for w, the first waiter that is compatible with the holders,
// or nil. It comes with the error for w if that is stepRefuse.
func (a *attempt) plan(w *waiter) (step, error) {
	switch {
	case a.state == abandoned:
		return stepResume, nil
	case w == nil:
		return stepFinish, nil
	}
	switch a.state {
	case unconnected:
		return stepConnect, nil
	case connected:
		return stepProbe, nil
	case differing:
		return stepRefuse, fmt.Errorf("%w: this one is %d, and another holds or waits with %d", ErrLimitDiffers, w.semaphore.limit, a.answer.Limit)
	case ready, refused, waiting, parked:
		return a.planAsk(w)
	case blocked, granted:
		return a.planGrant(w)
	default: // abandoned, see above
		panic("BUG: advisory: impossible state")
	}
}

// planAsk is plan where the session does not hold the lock.
func (a *attempt) planAsk(w *waiter) (step, error) {
	switch {
	case w.try && w.asked && len(w.Targets) > 1:
		return stepRefuse, fmt.Errorf("%w: another session holds one of the locks", ErrNotAcquired)
	case w.try && w.asked:
		return stepRefuse, errHeldElsewhere
	case a.state == parked && !w.try && !w.shared: // a reader may have inherited the session of a writer that left
		return stepPoll, nil
	case a.state.isAnswered() && !w.try:
		return stepWait, nil
	case !a.state.isConfigured() && a.session.UseFastPath(&w.Request):
		return stepTry, nil
	default:
		return stepScript, nil
	}
}

var errHeldElsewhere = fmt.Errorf("%w: another session holds the lock", ErrNotAcquired)

// planGrant is plan where the session holds the lock.
func (a *attempt) planGrant(w *waiter) (step, error) {
	switch {
	case a.shared != w.shared:
		return stepRelease, nil // the waiter that asked in the other mode left
	case w.Issue.IsZero():
		return stepGrant, nil
	case a.issue != w.Issue: // the receipt is of a waiter that left
		return stepScript, nil
	case a.state == granted:
		return stepGrant, nil
	case w.try:
		return stepRefuse, fmt.Errorf("%w: %w", ErrNotAcquired, a.blocker())
	default:
		return stepScript, nil
	}
}
