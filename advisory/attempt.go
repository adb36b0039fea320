package advisory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/grant"
	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// state is how far an attempt has come; see the package's documentation for the diagram.
type state uint8

const (
	unconnected state = iota // there is no connection
	connected                // there is one, whose session is not probed
	ready                    // the session is probed, and was asked for nothing yet
	abandoned                // it was asked, and nobody has read the answer yet
	refused                  // it holds nothing, and its settings are as they were
	waiting                  // a wait ended in vain: it holds the first of the locks, or none
	parked                   // it has its name and its settings, and is to ask again later
	differing                // it was refused, because the semaphore's limit differs
	blocked                  // it holds all locks, and a transaction blocks the receipt
	granted                  // it holds all locks
)

// isConfigured reports whether the session has its name and its settings, which are put
// back before its connection returns to the pool.
func (s state) isConfigured() bool {
	return s == waiting || s == parked || s == blocked || s == granted
}

// isAnswered reports whether the server has answered on the connection.
func (s state) isAnswered() bool { return s >= refused }

// attempt is the attempt to acquire the locks of a request on one connection.
type attempt struct {
	locker *Locker

	state   state
	session lockproto.Session
	shared  bool             // the mode in which the session was asked last
	issue   grant.Issue      // what it was asked for last besides
	answer  lockproto.Answer // the last one

	waitingSince time.Time // when a wait first ended in vain, or was parked; else zero
	pollAt       time.Time // when to ask again, while parked

	deadConns  int  // connections in a row that were dead when they were pinned
	isReprobed bool // the settings had changed when the session was asked last
}

// connect pins a connection.
func (a *attempt) connect(ctx context.Context, pin func(*Locker, context.Context) (*connhold.Hold, error)) error {
	l := a.locker
	if err := l.reserve(ctx); err != nil {
		return err
	}
	conn, err := pin(l, ctx)
	if err != nil {
		l.unreserve(func() {})
		if err.Error() == "closed pool" { // pgxpool has no value to test for
			err = errPoolClosed
		}
		return fmt.Errorf("get a connection: %w", explain(err))
	}
	conn.Panicked = l.panicked
	a.use(lockproto.Open(conn, &l.proto))
	return nil
}

// adopt takes over the connection of a lock that was just unlocked.
func (a *attempt) adopt(conn *connhold.Hold) { a.use(lockproto.Adopt(conn, &a.locker.proto)) }

func (a *attempt) use(session lockproto.Session) {
	a.session, a.state = session, connected
	if a.session.IsProbed() {
		a.state = ready
	}
}

// probe probes the session. Where that is dead already, the attempt is unconnected then.
func (a *attempt) probe(ctx context.Context) error {
	if err := a.session.Probe(ctx); err != nil {
		return a.fail(err)
	}
	a.state = ready
	return nil
}

// try asks for r with the prepared statement.
func (a *attempt) try(ctx context.Context, r *request) error {
	answer, err := a.session.Try(ctx, &r.Request)
	return a.observe(r, answer, err)
}

// resume reads the answer to a try that was abandoned.
func (a *attempt) resume(ctx context.Context, r *request) error {
	answer, err := a.session.Resume(ctx, &r.Request)
	return a.observe(r, answer, err)
}

// script asks for r with a script, which waits for a slice or not.
func (a *attempt) script(ctx context.Context, r *request, wait bool) error {
	p := lockproto.Progress{Configured: a.state.isConfigured(), Wait: wait, Waited: !a.waitingSince.IsZero()}
	if p.Configured {
		p.Held = a.answer.Held
	}
	answer, err := a.session.Script(ctx, &r.Request, p)
	return a.observe(r, answer, err)
}

// poll asks for r while the attempt is parked.
func (a *attempt) poll(ctx context.Context, r *request) error {
	if !a.session.UseFastPath(&r.Request) {
		return a.script(ctx, r, true)
	}
	answer, err := a.session.Poll(ctx, &r.Request)
	return a.observe(r, answer, err)
}

// observe goes to the state that an answer to r means.
func (a *attempt) observe(r *request, answer lockproto.Answer, err error) error {
	a.shared, a.issue = r.isShared(), r.Issue
	switch {
	case lockproto.IsAbandoned(err):
		a.state = abandoned
		return nil
	case err != nil:
		return a.fail(err)
	}
	a.answer = answer
	switch answer.Status {
	case lockproto.Changed:
		if a.isReprobed {
			return a.fail(errSettingsChange)
		}
		a.session.Invalidate()
		a.state, a.isReprobed = connected, true
		return nil
	case lockproto.Unfit: // a script is needed
		a.state = ready
	case lockproto.Refused:
		a.state = refused
	case lockproto.Waiting, lockproto.Seated:
		a.state = waiting
		a.waited()
	case lockproto.Parked:
		a.state = parked
		a.pollAt = time.Now().Add(lockproto.RandomPause(a.waited(), answer.Near))
	case lockproto.Differs:
		a.state = differing
	case lockproto.Blocked:
		a.state = blocked
	case lockproto.Granted:
		a.state = granted
	}
	a.deadConns, a.isReprobed = 0, false
	return nil
}

// waited returns for how long the attempt has waited on the server, or parked.
func (a *attempt) waited() time.Duration {
	if a.waitingSince.IsZero() {
		a.waitingSince = time.Now()
	}
	return time.Since(a.waitingSince)
}

var errSettingsChange = errors.New("the settings of the session change while nobody uses it")

// fail destroys the connection after an error: the session may hold locks all the same. It
// returns the error for the caller, unless the connection was dead when it was pinned. A
// pool gives such connections out, all of them after a restart of the server. A session
// that is dead holds nothing, and another connection will do.
func (a *attempt) fail(err error) error {
	wasDead := !a.state.isAnswered() && isDead(err) && a.deadConns < a.locker.size
	a.locker.unreserve(a.session.Hold().Destroy)
	*a = attempt{locker: a.locker, deadConns: a.deadConns + 1}
	if wasDead {
		return nil
	}
	return explain(err)
}

// isDead reports whether err means that the session had ended, and not what the
// connection leads to or what the server has answered.
func isDead(err error) bool {
	if isRefusal(err) || lockproto.IsWrongAnswer(err) || errors.Is(err, errSettingsChange) {
		return false
	}
	loss := connhold.LossFrom(err)
	return loss != nil && loss.Reason != connhold.Unresponsive
}

// isRefusal reports whether err is about what the connection leads to and not about its
// state.
func isRefusal(err error) bool {
	return errors.Is(err, ErrPooler) || errors.Is(err, ErrStandby) || errors.Is(err, ErrUnsupportedServer)
}

// explain says what to do where the server's words don't.
func explain(err error) error {
	const outOfSharedMemory = "53200"
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && pgErr.Code == outOfSharedMemory:
		return fmt.Errorf("%w: raise max_locks_per_transaction, or hold fewer locks: %w", ErrLockTableFull, err)
	case ok && strings.Contains(pgErr.Message, "plpgsql"):
		return fmt.Errorf("waiting needs the language plpgsql, and USAGE on it: %w", err)
	default:
		return err
	}
}

// blocker says which transaction blocks the receipt; nil when none does.
func (a *attempt) blocker() error {
	switch {
	case a.state != blocked:
		return nil
	case a.answer.Receipt < 0:
		return fmt.Errorf("a transaction in which an earlier holder has written is still open, in the session with PID %d", -a.answer.Receipt)
	default:
		return errors.New("a transaction in which an earlier holder has written is still open, or was prepared, or the marks are locked")
	}
}

// release gives the connection back. It frees whatever the session holds; where that
// fails, it destroys the connection.
func (a *attempt) release() {
	if a.state == unconnected {
		return
	}
	if a.state.isConfigured() {
		// After an error the connection is not clean, and Release destroys it.
		_ = a.session.Clear(context.Background(), a.locker.config.UnlockTimeout)
	}
	a.locker.unreserve(a.session.Hold().Release)
	*a = attempt{locker: a.locker}
}
