package fencing

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/internal/rollback"
)

// Beginner begins transactions: a pool or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// InTx begins a transaction on db and stamps it, calls fn and commits. If the stamp
// or fn fails, or fn panics, it rolls back. It returns the first error, translated: a
// refused write matches [ErrStale], [ErrUnstamped] or [ErrUnknownToken].
//
// Where db is a pool or a connection of pgx, BEGIN and stamp travel with the first
// statement of fn, by Exec, Query, QueryRow or SendBatch, and take no round trip of
// their own. So a connection is in no transaction before that; if it can't begin one,
// or can't stamp, the statement returns that error, and so does InTx. What fn sees is
// otherwise what it sees of any transaction of pgx. Begin and stamp come in one round
// trip before CopyFrom, Begin, Prepare, LargeObjects and Conn, before statements with
// options of pgx, where the connection has a tracer, and in the modes
// QueryExecModeDescribeExec and QueryExecModeSimpleProtocol for all but an Exec
// without arguments.
//
// The first time on a connection, they come before fn is called, to ask whether
// fencing is installed and may be used. The second time there is a round trip to
// prepare a statement where pgx prepares statements. It stays there. If it is gone, as
// it can be behind a pooler that lends connections for a transaction, that is found out
// once for each connection, by an error that the server logs. Where db is a Beginner of
// your own, for example one that sets the isolation level, the stamp is a round trip.
//
// ctx bounds the whole; it does not end with the lease by itself, for which
// [Lease.Context] is there. The isolation level is db's default. In
// repeatable read and serializable, a transaction that began before a newer
// token was issued fails with SQLSTATE 40001 at its first guarded write.
func (l *Lease) InTx(ctx context.Context, db Beginner, fn func(pgx.Tx) error) error {
	if ctx == nil {
		return l.notBegun(errNilContext)
	}
	return l.observe(ctx, l.inTx(ctx, db, fn))
}

func (l *Lease) inTx(ctx context.Context, db Beginner, fn func(pgx.Tx) error) error {
	if l.fencer == nil || l.Token() <= 0 { // Stamp says what is wrong
		return l.inTxOf(ctx, db, fn)
	}
	switch db := db.(type) {
	case *pgxpool.Pool:
		conn, err := db.Acquire(ctx)
		if err != nil {
			return l.notBegun(err)
		}
		defer conn.Release()
		return l.inTxOn(ctx, conn.Conn(), fn)
	case *pgxpool.Conn:
		return l.inTxOn(ctx, db.Conn(), fn)
	case *pgx.Conn:
		return l.inTxOn(ctx, db, fn)
	}
	return l.inTxOf(ctx, db, fn)
}

// inTxOf is InTx on whatever begins transactions.
func (l *Lease) inTxOf(ctx context.Context, db Beginner, fn func(pgx.Tx) error) error {
	return Translate(pgx.BeginTxFunc(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
		if err := l.Stamp(ctx, tx); err != nil {
			return err
		}
		return fn(tx)
	}))
}

// inTxOn is InTx on a connection, whose BeginQuery can stamp as well.
func (l *Lease) inTxOn(ctx context.Context, conn *pgx.Conn, fn func(pgx.Tx) error) error {
	known := stampingOf(conn)
	if err := known.prepare(ctx, conn); err != nil {
		return l.notBegun(err)
	}
	if known.isLate(conn) {
		return l.inTxLate(ctx, conn, known, fn)
	}
	begun := false
	err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: l.beginText(known)}, func(tx pgx.Tx) error {
		begun = true
		if *known == unknown {
			*known = called
		}
		return fn(tx)
	})
	if err == nil || begun {
		return Translate(err)
	}
	rollback.Run(ctx, conn, rollbackLimit)
	if *known == prepared && isMissing(err) {
		*known = unfitting
		return l.inTxOn(ctx, conn, fn)
	}
	return l.notBegun(err)
}

// beginText begins a transaction and stamps it.
func (l *Lease) beginText(known *stamping) string {
	if *known == prepared {
		return beginExecuting(l.resource, l.Token(), l.maxIdleMillis())
	}
	return beginCalling(l.resource, l.Token(), l.maxIdleMillis())
}

func (l *Lease) notBegun(err error) error {
	return fmt.Errorf("fencing: begin and stamp for resource %q: %w", l.resource, Translate(err))
}

// rollbackLimit bounds the end of a transaction that could not be stamped.
const rollbackLimit = 5 * time.Second
