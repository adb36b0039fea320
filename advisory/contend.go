package advisory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/grant"
)

// contest is how far the contention for a lock has come.
type contest struct {
	hold    *connhold.Hold // nil until connected
	stale   int            // connections in a row that were dead when pinned
	asked   bool           // the server has answered, on this connection
	granted bool
	issue   grant.Issue // of the receipt
	receipt int64       // 0 until it is made
}

// contend asks the server for the lock on behalf of those in the line, first
// come first served, until one of them has it or none waits any more. It goes
// by who is first at each step, because anyone may leave at any time.
func (l *Locker) contend(ln *line, c *contest) {
	for {
		w, alone := l.head(ln)
		var refusal error
		switch {
		case w == nil:
			// nobody to refuse
		case c.hold == nil:
			l.connect(ln, w, c)
			continue
		case !c.granted && w.try && w.asked:
			refusal = fmt.Errorf("%w: another session holds the lock", ErrNotAcquired)
		case !c.granted:
			l.ask(ln, w, c)
			continue
		case w.issue.IsZero() || c.issue == w.issue && c.receipt > 0:
			if l.serve(ln, w, newLock(l, ln, w, c)) {
				return
			}
			continue
		case c.issue == w.issue && w.try:
			refusal = fmt.Errorf("%w: a transaction of an earlier holder is still open", ErrNotAcquired)
		default:
			l.makeReceipt(ln, w, c)
			continue
		}
		switch {
		case w != nil && !alone:
			l.refuse(ln, w, refusal)
		case l.retire(ln, c, w, refusal):
			return
		}
	}
}

// connect pins a connection. Everybody in the line learns why there is none.
func (l *Locker) connect(ln *line, w *waiter, c *contest) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	defer cancel()
	if err := l.beginConnect(ctx, ln, cancel); err != nil {
		if ctx.Err() == nil {
			l.refuseAll(ln, err)
		}
		return
	}
	hold, err := l.pin(ctx)
	l.endConnect(ln, err)
	switch {
	case err == nil:
		c.hold = hold
	case ctx.Err() == nil: // else all who waited for it have left
		l.refuseAll(ln, fmt.Errorf("get a connection: %w", err))
	}
}

// ask tries the lock, or waits for it for one slice if that is known to be in
// vain.
func (l *Locker) ask(ln *line, w *waiter, c *contest) {
	limit := l.answerLimit(w.issue)
	step := func(ctx context.Context, conn *pgx.Conn) (*int64, error) { return try(ctx, conn, ln.tag) }
	switch {
	case c.asked && !w.try:
		limit += slice
		script := sliceScript(ln.tag, w.issue, c.hold.MajorVersion())
		step = func(ctx context.Context, conn *pgx.Conn) (*int64, error) { return runScript(ctx, conn, script) }
	case !w.issue.IsZero():
		script := tryScript(ln.tag, w.issue, c.hold.MajorVersion())
		step = func(ctx context.Context, conn *pgx.Conn) (*int64, error) { return runScript(ctx, conn, script) }
	}
	if receipt, ok := l.run(ln, w, c, limit, step); ok {
		c.asked, w.asked = true, true
		c.granted = receipt != nil
		c.keep(w.issue, receipt)
	}
}

// makeReceipt makes the receipt that w needs, on the session that has the lock.
func (l *Locker) makeReceipt(ln *line, w *waiter, c *contest) {
	script := issueScript(w.issue, c.hold.MajorVersion())
	receipt, ok := l.run(ln, w, c, l.answerLimit(w.issue), func(ctx context.Context, conn *pgx.Conn) (*int64, error) {
		return runScript(ctx, conn, script)
	})
	if ok {
		c.keep(w.issue, receipt)
	}
}

func (c *contest) keep(issue grant.Issue, receipt *int64) {
	c.issue, c.receipt = issue, 0
	if receipt != nil {
		c.receipt = *receipt
	}
}

// issueLimit is how long an Issue may wait in the database beyond the time for
// an answer; it bounds its own waits far below.
const issueLimit = time.Second

func (l *Locker) answerLimit(issue grant.Issue) time.Duration {
	if issue.IsZero() {
		return l.config.HeartbeatTimeout
	}
	return l.config.HeartbeatTimeout + issueLimit
}

// run runs one step on behalf of w. After an error the session may hold the
// lock all the same, so its connection is destroyed and the contest begins
// anew; unless that is in order, w learns why.
func (l *Locker) run(ln *line, w *waiter, c *contest, limit time.Duration,
	step func(context.Context, *pgx.Conn) (*int64, error),
) (receipt *int64, ok bool) {
	err := c.hold.Run(w.ctx, limit, func(ctx context.Context, conn *pgx.Conn) (err error) {
		receipt, err = step(ctx, conn)
		return err
	})
	if err == nil {
		c.stale = 0
		return receipt, true
	}
	l.unpin(c.hold.Destroy)
	// A pool gives out connections that died while they idled, all of them
	// after a restart of the server. A session that is dead holds nothing.
	wasStale := !c.asked && isDead(err) && c.stale < l.size
	*c = contest{stale: c.stale + 1}
	if !wasStale {
		l.refuse(ln, w, explain(err))
	}
	return nil, false
}

func isDead(err error) bool {
	loss := connhold.LossFrom(err)
	return loss != nil && loss.Reason != connhold.Unresponsive
}

// explain says what to do where the server's words don't.
func explain(err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if ok && strings.Contains(pgErr.Message, "plpgsql") {
		return fmt.Errorf("waiting needs the language plpgsql, and USAGE on it: %w", err)
	}
	return err
}

// retire ends the contention when nobody waits but w, whom it refuses then; w
// may be nil. It reports false if somebody has come meanwhile.
func (l *Locker) retire(ln *line, c *contest, w *waiter, refusal error) bool {
	if c.hold != nil {
		if c.granted {
			// On an error the connection is not clean, and Release destroys it.
			_ = c.hold.Run(context.Background(), l.config.UnlockTimeout, clearSession)
		}
		// The connection goes back before w is told: it may ask at once for
		// another lock.
		l.unpin(c.hold.Release)
		*c = contest{}
	}
	return l.remove(ln, w, refusal)
}
