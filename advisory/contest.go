package advisory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/grant"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

// request is what is asked for: locks, and what their grant must do besides.
type request struct {
	keys    []Key    // as given
	targets []target // in order, each once
	issue   grant.Issue
	slots   *Semaphore // nil but for a slot of a semaphore
}

// contest is one connection's contention for a request, and how far it has come.
type contest struct {
	hold  *connhold.Hold // nil until connected
	known *acquaintance
	way   *way

	left    bool // the server was asked, and the answer was not waited for
	changed bool // the session's settings had changed since it was met

	stale   int  // connections in a row that were dead when pinned
	asked   bool // the server has answered, on this connection
	shared  bool // the mode in which it was asked last
	held    int  // how many of the locks the session holds, in order
	granted bool // all of them
	applied bool // the settings
	// application is the application_name from before the settings were applied.
	application string
	refusal     error // the answer is no, whoever asks
	issue       grant.Issue
	receipt     int64 // of issue; not positive until it is made
	slot        int   // of a semaphore
}

// issueLimit is how long an Issue may wait in the database beyond the time for
// an answer; it bounds its own waits far below.
const issueLimit = time.Second

// ask tries the locks, or waits for them for one slice. After an error the
// session may hold them all the same: it can only be destroyed.
func (c *contest) ask(ctx context.Context, l *Locker, r request, wait bool) error {
	c.shared = r.targets[0].shared
	if c.goesShort(&r, wait) {
		err := c.try(context.WithoutCancel(ctx), l, r)
		if !errors.Is(err, connhold.ErrAbandoned) { // it needs a script
			return err
		}
	}
	if !c.applied {
		c.application = applicationOf(c.hold)
	}
	name := sessionName(labels(r.keys), c.application)
	if r.slots != nil {
		return c.askSlot(ctx, l, r, name, wait)
	}
	s := script{targets: r.targets, held: c.held, applied: c.applied, issue: r.issue, name: name, way: c.way}
	if wait {
		s.wait = slice
	}
	limit := l.config.HeartbeatTimeout + s.wait
	if !r.issue.IsZero() {
		limit += issueLimit
	}
	return c.run(ctx, limit, s.String(), len(r.targets), r.issue)
}

// prepareSession clears the session and applies the settings without a lock.
func (c *contest) prepareSession(ctx context.Context, l *Locker, name string) error {
	sql := fmt.Sprintf("SELECT CASE WHEN %s THEN CASE WHEN %s THEN %s AND %s ELSE false END END",
		cleared, c.way.areAsBefore(), setName(hexText(name)), c.way.apply())
	var answer []string
	err := c.hold.Run(ctx, l.config.HeartbeatTimeout, func(ctx context.Context, conn *pgx.Conn) (err error) {
		answer, err = pooler.Ask(ctx, conn.PgConn(), sql)
		return err
	})
	switch {
	case err != nil:
		return err
	case answer[0] != answerGranted:
		return c.meetAnew()
	}
	c.asked, c.applied, c.changed = true, true, false
	return nil
}

// makeReceipt makes the receipt on a session that has the lock.
func (c *contest) makeReceipt(ctx context.Context, l *Locker, r request) error {
	s := script{targets: r.targets, held: len(r.targets), applied: true, issue: r.issue, way: c.way}
	return c.run(ctx, l.config.HeartbeatTimeout+issueLimit, s.String(), len(r.targets), r.issue)
}

func (c *contest) run(ctx context.Context, limit time.Duration, text string, targets int, issue grant.Issue) error {
	var answer []*int64
	err := c.hold.Run(ctx, limit, func(ctx context.Context, conn *pgx.Conn) (err error) {
		answer, err = runScript(ctx, conn, text)
		return err
	})
	if err != nil {
		return err
	}
	if *answer[0] == heldChanged {
		return c.meetAnew()
	}
	c.asked, c.stale, c.changed = true, 0, false
	c.held, c.applied = int(*answer[0]), true
	c.granted = c.held == targets
	c.issue, c.receipt = issue, 0
	if answer[1] != nil {
		c.receipt = *answer[1]
	}
	return nil
}

// runScript returns the two numbers that a script selects; nil is NULL.
func runScript(ctx context.Context, conn *pgx.Conn, text string) ([]*int64, error) {
	results, err := conn.PgConn().Exec(ctx, text).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) < 2 {
		return nil, fmt.Errorf("the server answered %d of the statements", len(results))
	}
	rows := results[len(results)-2].Rows // the last is COMMIT
	if len(rows) != 1 || len(rows[0]) != 2 {
		return nil, fmt.Errorf("the server answered with %d rows", len(rows))
	}
	answer := make([]*int64, 2)
	for i, text := range rows[0] {
		if text == nil {
			continue
		}
		n, err := strconv.ParseInt(string(text), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the server's answer: %w", err)
		}
		answer[i] = &n
	}
	return answer, nil
}

// pending says for whose transaction a receipt waits; nil when none does.
func (c *contest) pending() error {
	switch {
	case !c.granted || c.issue.IsZero() || c.receipt > 0:
		return nil
	case c.receipt < 0:
		return fmt.Errorf("a transaction in which an earlier holder has written is still open, in the session with PID %d", -c.receipt)
	default:
		return errors.New("a transaction in which an earlier holder has written is still open, or was prepared, or the marks are locked")
	}
}

// giveBack ends the connection's part: whatever the session holds is released,
// and its connection returns to the pool, or is destroyed if that fails.
func (c *contest) giveBack(l *Locker) {
	if c.hold == nil {
		return
	}
	if c.applied {
		c.clear(l)
	}
	l.unpin(c.hold.Release)
	*c = contest{}
}

// clear releases what the session holds and puts its settings back.
func (c *contest) clear(l *Locker) {
	// On an error the connection is not clean, and Release destroys it.
	_ = c.hold.Run(context.Background(), l.config.UnlockTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, clearSQL(c.way, c.application))
		return err
	})
}
