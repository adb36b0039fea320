package advisory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/grant"
)

// The short way is that of locks that are free: a prepared statement to lock and one
// to unlock. What the session's settings were is known from when it was
// met, so that the lock statement only has to look whether that is still true,
// and the unlock statement has it as constants. In a pool of the Locker's own,
// whose connections serve nobody else, they are set for good when it is met.
// Everything else, a wait or an Issue that needs a script, goes the long way:
// settings.apply and settings.restore have the server keep what was set before.

// shortWay are a session's statements of the short way. It belongs to the
// session's acquaintance.
type shortWay struct {
	all    settings
	names  []string // of those that the server knows
	values []string // to be set
	before []string // as they were
	id     string   // tells apart the statements of several Lockers
	try    map[form]*connhold.Statement
	free   map[form]*connhold.Statement

	major    int  // version of the server
	scripted bool // an Issue needs a script
}

func newShortWay(known *acquaintance, vanishTimeout time.Duration) *shortWay {
	w := &shortWay{
		major: known.major, id: strconv.FormatInt(vanishTimeout.Milliseconds(), 10),
		try: make(map[form]*connhold.Statement), free: make(map[form]*connhold.Statement),
	}
	if known.own {
		return w
	}
	w.all = settingsFor(known, vanishTimeout)
	for i, name := range w.all.names {
		if at := slices.Index(allSettings, name); at < len(known.before) && known.before[at] != "" {
			w.names = append(w.names, name)
			w.values = append(w.values, w.all.values[i])
			w.before = append(w.before, known.before[at])
		}
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

func (w *shortWay) tryStatement(hold *connhold.Hold, f form) *connhold.Statement {
	s, ok := w.try[f]
	if !ok {
		s = hold.NewStatement(w.statementName("lock", f), w.tryText(f))
		w.try[f] = s
	}
	return s
}

func (w *shortWay) unlockStatement(hold *connhold.Hold, f form) *connhold.Statement {
	s, ok := w.free[f]
	if !ok {
		s = hold.NewStatement(w.statementName("unlock", f), unlockSQL(f, w.restore(f.text())))
		w.free[f] = s
	}
	return s
}

func (w *shortWay) statementName(what string, f form) string {
	return "pgadvisory_" + w.id + "_" + what + f.suffix()
}

// goesShort reports whether the short way is the one to ask.
func (c *contest) goesShort(r *request, wait bool) bool {
	return !wait && r.slots == nil && (r.issue.IsZero() || !c.short.scripted)
}

// try goes the short way, or on where it was left. It returns connhold.ErrLeft
// when ctx ends before the server has answered.
func (c *contest) try(ctx context.Context, l *Locker, r request) error {
	c.shared = r.targets[0].shared
	var answer string
	var err error
	if c.left {
		answer, err = c.hold.Resume(ctx)
	} else {
		c.session.application = c.hold.ParameterStatus("application_name")
		name := sessionName(labels(r.keys), c.session.application)
		limit, params := l.config.HeartbeatTimeout, lockParameters(r.targets, false, name)
		if !r.issue.IsZero() {
			limit, params = limit+issueLimit, append(params, []byte(r.issue.Hex()))
		}
		answer, err = c.hold.Ask(ctx, limit, c.short.tryStatement(c.hold, formOf(r.targets, r.issue.Func)), params...)
	}
	c.left = errors.Is(err, connhold.ErrLeft)
	if err != nil {
		return err
	}
	switch answer {
	case answerChanged:
		return c.meetAnew()
	case answerScript: // there is no answer yet
		c.short.scripted = true
		return connhold.ErrLeft
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
		c.hold.Taint()
		return fmt.Errorf("the server's answer to a lock was %q: %w", answer, err)
	}
	if c.granted {
		c.applied, c.session.short = true, c.short
	}
	c.stale, c.changed = 0, false
	return nil
}

// unlock reports whether the session held the locks.
func (w *shortWay) unlock(ctx context.Context, hold *connhold.Hold, limit time.Duration, locks []target, application string) (owned bool, err error) {
	answer, err := hold.Ask(context.WithoutCancel(ctx), limit, w.unlockStatement(hold, formOf(locks, "")), lockParameters(locks, true, application)...)
	return answer == answerGranted, err
}

// meetAnew is for a session whose settings other code has changed since it was
// met. It is as if it had not been asked.
func (c *contest) meetAnew() error {
	if c.changed {
		c.hold.Taint()
		c.asked = true
		return errors.New("the settings of the session change while nobody uses it")
	}
	forget(c.hold)
	c.changed, c.known = true, nil
	return nil
}
