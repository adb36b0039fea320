package advisory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
	issue   grant.Issue // for which receipt was made
	receipt int64       // 0 until it is made
}

// contend asks the server for the lock on behalf of those in the line, first
// come first served, until one of them has it or none waits any more. It goes
// by who is first at each step, because anyone may leave at any time.
func (l *Locker) contend(ln *line, c *contest) {
	for {
		w := l.head(ln)
		switch {
		case w == nil:
			if l.retire(ln, c) {
				return
			}
		case c.hold == nil:
			l.connect(ln, w, c)
		case !c.granted && c.asked && w.try:
			l.refuse(ln, w, fmt.Errorf("%w: another session holds the lock", ErrNotAcquired))
		case !c.granted:
			l.ask(ln, w, c)
		case c.receipt == 0 && w.try:
			l.refuse(ln, w, fmt.Errorf("%w: a transaction of an earlier holder is still open", ErrNotAcquired))
		case c.receipt == 0 || !w.issue.IsZero() && w.issue != c.issue:
			l.makeReceipt(ln, w, c)
		default:
			if l.serve(ln, w, newLock(l, ln, w.key, c)) {
				return
			}
		}
	}
}

// connect pins a connection. Everybody in the line learns why there is none.
func (l *Locker) connect(ln *line, w *waiter, c *contest) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	defer cancel()
	if err := l.beginConnect(ln, cancel); err != nil {
		l.refuseAll(ln, err)
		return
	}
	hold, err := connhold.Pin(ctx, l.pool)
	l.endConnect(ln, err)
	switch {
	case err == nil:
		c.hold = hold
	case ctx.Err() == nil: // else all who waited for it have left
		l.refuseAll(ln, fmt.Errorf("get a connection: %w", err))
	}
}

// ask tries the lock, or waits for it for one slice if a try has failed.
func (l *Locker) ask(ln *line, w *waiter, c *contest) {
	limit := l.config.HeartbeatTimeout + issueLimit
	run := func(ctx context.Context, conn *pgx.Conn) (*int64, error) {
		return query(ctx, conn, trySQL(ln.tag, w.issue), append(ln.tag.args(), w.issue.Args()...)...)
	}
	if c.asked {
		limit += slice
		script := sliceSQL(ln.tag, w.issue, c.hold.MajorVersion())
		run = func(ctx context.Context, conn *pgx.Conn) (*int64, error) { return runScript(ctx, conn, script) }
	}
	if receipt, ok := l.run(ln, w, c, limit, run); ok {
		c.asked = true
		c.granted = receipt != nil
		c.keep(w.issue, receipt)
	}
}

// makeReceipt makes the receipt that w needs, on the session that has the lock.
func (l *Locker) makeReceipt(ln *line, w *waiter, c *contest) {
	receipt, ok := l.run(ln, w, c, l.config.HeartbeatTimeout+issueLimit,
		func(ctx context.Context, conn *pgx.Conn) (*int64, error) {
			return query(ctx, conn, issueSQL(w.issue), w.issue.Args()...)
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

// run runs one step on behalf of w. After an error the session may hold the
// lock all the same, so its connection is destroyed and the contest begins
// anew; unless it can go on, w learns why.
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
	wasStale := !c.asked && isDead(err)
	*c = contest{stale: c.stale}
	switch {
	case wasStale && c.stale < l.size:
		// A pool gives out connections that died while they idled, all of them
		// after a restart of the server. A session that is dead holds nothing.
		c.stale++
	case isSerializationFailure(err):
		// The receipt's, in an isolation level with an old snapshot; the next
		// statement has a new one.
	default:
		l.refuse(ln, w, err)
	}
	return nil, false
}

func isDead(err error) bool {
	loss := connhold.LossFrom(err)
	return loss != nil && loss.Reason != connhold.Unresponsive
}

func isSerializationFailure(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == "40001"
}

// retire ends the contention when nobody waits, and reports false if somebody
// has come meanwhile.
func (l *Locker) retire(ln *line, c *contest) bool {
	if c.hold != nil {
		if c.granted {
			// On an error the connection is not clean, and Release destroys it.
			_ = c.hold.Run(context.Background(), l.config.UnlockTimeout, clearSession)
		}
		l.unpin(c.hold.Release)
		*c = contest{}
	}
	return l.remove(ln)
}

func clearSession(ctx context.Context, conn *pgx.Conn) error {
	_, err := conn.Exec(ctx, clearSQL)
	return err
}

func query(ctx context.Context, conn *pgx.Conn, sql string, args ...any) (receipt *int64, err error) {
	err = conn.QueryRow(ctx, sql, args...).Scan(&receipt)
	return receipt, err
}

// runScript runs several statements in one round trip and returns the one value
// that one of them selects. The script holds no parameters: the simple protocol
// has none.
func runScript(ctx context.Context, conn *pgx.Conn, script string) (*int64, error) {
	results, err := conn.PgConn().Exec(ctx, script).ReadAll()
	if err != nil {
		return nil, err
	}
	for _, r := range results {
		if len(r.Rows) == 1 && len(r.Rows[0]) == 1 {
			return parseReceipt(r.Rows[0][0])
		}
	}
	panic("BUG: advisory: the script selects nothing")
}

// parseReceipt reads a bigint in text form; nil is NULL.
func parseReceipt(text []byte) (*int64, error) {
	if text == nil {
		return nil, nil
	}
	receipt, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return nil, fmt.Errorf("the server's receipt: %w", err)
	}
	return &receipt, nil
}
