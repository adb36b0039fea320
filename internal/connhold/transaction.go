package connhold

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/rollback"
)

// Transaction is a transaction on a pinned session. What it takes to begin and to
// end it is bounded by a limit of its own, so that the end of a context between two
// statements does not cost the session, as it does with pgx.
type Transaction struct {
	hold  *Hold
	tx    pgx.Tx
	limit time.Duration
	// closeOpen closes the rows, the row or the batch that was opened last. No more
	// than one is open at a time.
	closeOpen func()
	silence   error // that the server did not answer within a limit
}

// Begin begins a transaction; limit bounds that, and later what it takes to roll back.
// ctx is used for its values only. After an error the session has no transaction, and
// the hold can be used if its connection is open. The owner must call End, before it
// does anything else with the hold.
func (h *Hold) Begin(ctx context.Context, limit time.Duration, options pgx.TxOptions) (*Transaction, error) {
	h.mustBeFree("transaction")
	t := &Transaction{hold: h, limit: limit, closeOpen: func() {}}
	conn := h.pin.Conn()
	err := t.within(limit, func() (err error) {
		t.tx, err = conn.BeginTx(context.WithoutCancel(ctx), options)
		return err
	})
	if err != nil {
		t.settle(ctx)
		return nil, err
	}
	return t, nil
}

// Tx is the transaction for those who run statements in it. They may end it.
func (t *Transaction) Tx() pgx.Tx { return &outermost{tracked{t.tx, t}} }

// End commits if err is nil and ctx has not ended, and else rolls back. It returns err,
// or else ctx's error, or that of the commit. Rows that were left open are closed. ctx
// bounds the commit, and commitLimit does. The end of ctx during the commit makes pgx
// close the connection by default. After End the hold can be used if its connection is
// open.
func (t *Transaction) End(ctx context.Context, commitLimit time.Duration, err error) error {
	t.close()
	if err == nil {
		err = t.commit(ctx, commitLimit)
	}
	_ = t.rollBack(ctx) // nothing after a commit; else settle sees to what is left
	t.settle(ctx)
	return err
}

func (t *Transaction) commit(ctx context.Context, limit time.Duration) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return t.within(limit, func() error { return t.tx.Commit(ctx) })
}

// rollBack returns pgx.ErrTxClosed if the transaction has ended.
func (t *Transaction) rollBack(ctx context.Context) error {
	return t.within(t.limit, func() error { return t.tx.Rollback(context.WithoutCancel(ctx)) })
}

// Silence returns how it was found out that the server does not answer, or nil.
func (t *Transaction) Silence() error { return t.silence }

// close closes what was left open, which reads it to its end.
func (t *Transaction) close() {
	if t.conn().PgConn().IsBusy() {
		_ = t.within(t.limit, func() error {
			t.closeOpen()
			if t.conn().IsClosed() { // it read nothing for too long
				return os.ErrDeadlineExceeded
			}
			return nil
		})
	}
	t.closeOpen = func() {}
}

// settle sees to it that the session has no transaction any more, or its connection is
// closed.
func (t *Transaction) settle(ctx context.Context) {
	conn := t.conn()
	err := Protect(func() error {
		rollback.Run(ctx, conn, t.limit)
		return nil
	})
	dropNotifications(conn)
	isIdle := !conn.PgConn().IsBusy() && conn.PgConn().TxStatus() == 'I'
	if err != nil && !isIdle { // a handler has panicked before the ROLLBACK was sent
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.limit)
		defer cancel()
		_ = Protect(func() error { return conn.Close(ctx) })
	}
	t.hold.dirty = t.hold.dirty || err != nil || conn.IsClosed() || !isIdle
}

func (t *Transaction) conn() *pgx.Conn { return t.hold.pin.Conn() }

// within bounds what fn does on the socket, and returns a panic of a handler as an error.
func (t *Transaction) within(limit time.Duration, fn func() error) error {
	until := time.Now().Add(limit)
	// Setting a deadline fails on a closed socket only, and fn says so then.
	_ = t.hold.socket().SetDeadline(until)
	err := Protect(fn)
	_ = t.hold.socket().SetDeadline(time.Time{})
	if errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(until) {
		t.silence = fmt.Errorf("the server did not answer within %s: %w", limit.Round(time.Millisecond), err)
		return t.silence
	}
	return err
}

// tracked is a transaction, or a savepoint in it, whose rows are closed at its end.
type tracked struct {
	pgx.Tx
	of *Transaction
}

// opens notes how to close what is about to be opened, unless something is open
// already: pgx refuses another then.
func (t tracked) opens() func(closeIt func()) {
	if t.of.conn().PgConn().IsBusy() {
		return func(func()) {}
	}
	return func(closeIt func()) { t.of.closeOpen = closeIt }
}

func (t tracked) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return tracked{tx, t.of}, nil
}

func (t tracked) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	note := t.opens()
	rows, err := t.Tx.Query(ctx, sql, args...)
	if rows != nil {
		note(rows.Close)
	}
	return rows, err
}

func (t tracked) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	note := t.opens()
	row := t.Tx.QueryRow(ctx, sql, args...)
	note(func() { _ = row.Scan() }) // which closes it
	return row
}

func (t tracked) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	note := t.opens()
	results := t.Tx.SendBatch(ctx, b)
	note(func() { _ = results.Close() })
	return results
}

// outermost is the transaction itself. That its end is asked for with a context that
// has ended must not cost the session either.
type outermost struct{ tracked }

func (t *outermost) Commit(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	t.of.close()
	return t.Tx.Commit(ctx)
}

func (t *outermost) Rollback(ctx context.Context) error {
	t.of.close()
	return t.of.rollBack(ctx)
}

var _ pgx.Tx = (*outermost)(nil)
