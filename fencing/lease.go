package fencing

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Lease is one holding of a resource: its lock and the token that came with
// it. The lock's methods are the Lease's own. It is safe for concurrent use,
// and so are any number of stamped transactions at the same time.
//
// A Lease whose lock is lost or unlocked still stamps: what its token is worth
// the database decides, at each write.
type Lease struct {
	*advisory.Lock
	fencer   *Fencer
	resource string
}

// Beginner begins transactions: a pool or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// Token is the number of this holding.
func (l *Lease) Token() Token { return Token(l.Receipt()) }

// Resource is the name of what is held.
func (l *Lease) Resource() string { return l.resource }

// Stamp lets the transaction write to the tables that are guarded for the
// resource, for as long as the token is the current one. It takes one round
// trip. tx may be of any connection to the database of the guarded tables; its
// other settings stay as they are, but it may not sit idle for longer than
// [Config.MaxIdle].
//
// An error of the server leaves the transaction failed. Errors of the writes themselves come
// from pgx; [Translate] says what they mean.
func (l *Lease) Stamp(ctx context.Context, tx pgx.Tx) error {
	if l.fencer == nil { // not from a Fencer: there is no token, and stamp says so
		return stamp(ctx, tx, l.resource, 0, defaultMaxIdle)
	}
	return stamp(ctx, tx, l.resource, l.Token(), l.fencer.config.MaxIdle)
}

// InTx begins a transaction on db and stamps it, in one round trip if db is a pool
// or a connection of pgx and in two if it is a Beginner of your own, for example one
// that sets the isolation level; it calls fn and commits. If the stamp or fn fails, or
// fn panics, it rolls back. It returns the first error, translated: a refused write
// matches [ErrStale], [ErrUnstamped] or [ErrUnknownToken].
//
// ctx bounds the whole; it does not end with the lease by itself, for which
// [advisory.Lock.Context] is there. The isolation level is db's default. In
// repeatable read and serializable, a transaction that began before a newer
// token was issued fails with SQLSTATE 40001 at its first guarded write.
//
// When the server refuses the stamp itself, because fencing is not installed or the
// role may not use it, a pool closes the connection.
func (l *Lease) InTx(ctx context.Context, db Beginner, fn func(pgx.Tx) error) error {
	switch db.(type) {
	case *pgxpool.Pool, *pgxpool.Conn, *pgx.Conn:
		if l.fencer != nil && l.Token() > 0 { // else Stamp says what is wrong
			return l.inTxAtOnce(ctx, db, fn)
		}
	}
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{}, func(tx pgx.Tx) error {
		if err := l.Stamp(ctx, tx); err != nil {
			return err
		}
		return fn(tx)
	})
	return Translate(err)
}

// inTxAtOnce is InTx for what runs [pgx.TxOptions] BeginQuery as it is.
func (l *Lease) inTxAtOnce(ctx context.Context, db Beginner, fn func(pgx.Tx) error) error {
	begun := false
	err := pgx.BeginTxFunc(ctx, db, pgx.TxOptions{BeginQuery: l.beginSQL()}, func(tx pgx.Tx) error {
		begun = true
		return fn(tx)
	})
	if err != nil && !begun {
		endFailed(ctx, db)
		return fmt.Errorf("fencing: begin and stamp for resource %q: %w", l.resource, Translate(err))
	}
	return Translate(err)
}

// beginSQL begins a transaction and stamps it.
func (l *Lease) beginSQL() string {
	// More than that fits neither the setting nor, before PostgreSQL 15, an interval
	// in one unit.
	maxIdle := min(max(1, l.fencer.config.MaxIdle.Milliseconds()), math.MaxInt32)
	return fmt.Sprintf("BEGIN; SELECT fencing.stamp(%s, '%d', '%d milliseconds')", literal(l.resource), l.Token(), maxIdle)
}

// literal is a text in SQL, spelled so that no setting of the session decides how it
// is read.
func literal(text string) string {
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(" -_./:", rune(c)) {
			return fmt.Sprintf("pg_catalog.convert_from(pg_catalog.decode('%x', 'hex'), 'UTF8')", text)
		}
	}
	return "'" + text + "'"
}

// endFailed rolls back what a stamp that failed has left on a connection of the
// caller's. A pool closes its own.
func endFailed(ctx context.Context, db Beginner) {
	conn, _ := db.(*pgx.Conn)
	if c, ok := db.(interface{ Conn() *pgx.Conn }); ok {
		conn = c.Conn()
	}
	if conn == nil || conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	_, _ = conn.Exec(ctx, "ROLLBACK") // on an error pgx closes the connection
}

// rollbackLimit bounds a rollback when ctx may have ended.
const rollbackLimit = 5 * time.Second

// Stamp stamps a transaction as [Lease.Stamp] does, for a worker that was
// handed the resource and the token and not the Lease. It may sit idle for one
// minute.
func Stamp(ctx context.Context, tx pgx.Tx, resource string, token Token) error {
	return stamp(ctx, tx, resource, token, defaultMaxIdle)
}

func stamp(ctx context.Context, tx pgx.Tx, resource string, token Token, maxIdle time.Duration) error {
	if token <= 0 {
		return fmt.Errorf("fencing: stamp for resource %q: token %d is not valid: tokens start at 1", resource, token)
	}
	if _, err := tx.Exec(ctx, stampSQL, resource, int64(token), maxIdle); err != nil {
		return fmt.Errorf("fencing: stamp for resource %q: %w", resource, Translate(err))
	}
	return nil
}
