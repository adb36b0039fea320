package advisory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/grant"
)

// The short way is that of locks that are free: a prepared statement to lock and one
// to unlock. What has to wait, comes with an Issue that needs a transaction with
// other settings, or is a slot of a semaphore, takes a script to lock, and the same
// statement to unlock.

// way is how a Locker locks and unlocks on one session. It belongs to the session's
// acquaintance.
type way struct {
	settings
	id   string // tells apart the statements of several Lockers
	try  map[form]*connhold.Statement
	free map[form]*connhold.Statement

	afterBegin string // SQL, in Lock.Tx
	major      int    // version of the server
	scripted   bool   // an Issue needs a script
}

func newWay(known *acquaintance, vanishTimeout time.Duration) *way {
	w := &way{
		major: known.major, id: strconv.FormatInt(vanishTimeout.Milliseconds(), 10),
		try: make(map[form]*connhold.Statement), free: make(map[form]*connhold.Statement),
	}
	if millis, ok := checkInterval(known, vanishTimeout); ok {
		w.afterBegin = lookForClient(millis)
	}
	if !known.own {
		w.settings = settingsFor(known, vanishTimeout)
	}
	return w
}

// What the lock statement answers.
const (
	answerGranted = "t"
	answerRefused = "f"
	answerChanged = "changed" // nothing was done, the settings are not as they were
	answerScript  = "script"  // nothing was done, the Issue needs a transaction with other settings
)

func (w *way) tryStatement(hold *connhold.Hold, f form) *connhold.Statement {
	s, ok := w.try[f]
	if !ok {
		s = hold.NewStatement(w.statementName("lock", f), w.tryText(f))
		w.try[f] = s
	}
	return s
}

func (w *way) unlockStatement(hold *connhold.Hold, f form) *connhold.Statement {
	s, ok := w.free[f]
	if !ok {
		s = hold.NewStatement(w.statementName("unlock", f), w.unlockText(f))
		w.free[f] = s
	}
	return s
}

func (w *way) statementName(what string, f form) string {
	return "pgadvisory_" + w.id + "_" + what + f.suffix()
}

// goesShort reports whether the short way is the one to ask.
func (c *contest) goesShort(r *request, wait bool) bool {
	return !wait && !c.applied && r.slots == nil && (r.issue.IsZero() || !c.way.scripted)
}

// try goes the short way, or on where it was left. It returns connhold.ErrAbandoned
// when ctx ends before the server has answered.
func (c *contest) try(ctx context.Context, l *Locker, r request) error {
	c.shared = r.targets[0].shared
	var answer string
	var err error
	if c.left {
		answer, err = c.hold.Resume(ctx)
	} else {
		c.application = applicationOf(c.hold)
		name := sessionName(labels(r.keys), c.application)
		limit, params := l.config.HeartbeatTimeout, lockParameters(r.targets, false, name)
		if !r.issue.IsZero() {
			limit, params = limit+issueLimit, append(params, []byte(r.issue.Hex()))
		}
		answer, err = c.hold.RoundTrip(ctx, limit, c.way.tryStatement(c.hold, formOf(r.targets, r.issue.Func)), params...)
	}
	c.left = errors.Is(err, connhold.ErrAbandoned)
	if err != nil {
		return err
	}
	switch answer {
	case answerChanged:
		return c.meetAnew()
	case answerScript: // there is no answer yet
		c.way.scripted = true
		return connhold.ErrAbandoned
	}
	return c.answered(answer, r.issue)
}

// answered notes what the server has said.
func (c *contest) answered(answer string, issue grant.Issue) (err error) {
	switch {
	case answer == answerRefused:
	case issue.IsZero() && answer == answerGranted:
		c.granted = true
	case issue.IsZero():
		err = errors.New("it is no truth value")
	default:
		c.granted, c.issue = true, issue
		c.receipt, err = strconv.ParseInt(answer, 10, 64)
	}
	c.asked = true
	if err != nil {
		c.hold.MarkDirty()
		return fmt.Errorf("the server's answer to a lock was %q: %w", answer, err)
	}
	c.applied = c.granted
	c.stale, c.changed = 0, false
	return nil
}

// unlock reports whether the session held the locks.
func (w *way) unlock(ctx context.Context, hold *connhold.Hold, limit time.Duration, locks []target, application string) (owned bool, err error) {
	answer, err := hold.RoundTrip(context.WithoutCancel(ctx), limit, w.unlockStatement(hold, formOf(locks, "")), lockParameters(locks, true, application)...)
	return answer == answerGranted, err
}

// meetAnew is for a session whose settings other code has changed since it was
// met. It is as if it had not been asked.
func (c *contest) meetAnew() error {
	if c.changed {
		c.hold.MarkDirty()
		c.asked = true
		return errors.New("the settings of the session change while nobody uses it")
	}
	forget(c.hold)
	c.changed, c.known = true, nil
	return nil
}
