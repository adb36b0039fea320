package fencing

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Beginner begins transactions: a pool or a connection.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// InTx begins a transaction on db and stamps it, calls fn and commits. If the stamp
// or fn fails, or fn panics, it rolls back. It returns the first error, translated: a
// refused write matches [ErrStale], [ErrUnstamped] or [ErrUnknownToken].
//
// Where db is a pool or a connection of pgx, the stamp costs no round trip, but for
// one on a connection that InTx has not used before. Where it is a Beginner of your
// own, for example one that sets the isolation level, the stamp costs one. A
// connection that InTx knows is not asked anew whether fencing is installed, and how
// long a transaction may be idle there by its own setting.
//
// ctx bounds the whole; it does not end with the lease by itself, for which
// [advisory.Lock.Context] is there. The isolation level is db's default. In
// repeatable read and serializable, a transaction that began before a newer
// token was issued fails with SQLSTATE 40001 at its first guarded write.
func (l *Lease) InTx(ctx context.Context, db Beginner, fn func(pgx.Tx) error) error {
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
	// More than that fits neither the setting nor, before PostgreSQL 15, an interval
	// in one unit.
	maxIdle := min(max(1, l.fencer.config.MaxIdle.Milliseconds()), math.MaxInt32)
	known := knownOf(conn)
	idle := known[maxIdle]
	options := pgx.TxOptions{BeginQuery: l.beginSQL(maxIdle, idle)}
	begun := false
	err := pgx.BeginTxFunc(ctx, conn, options, func(tx pgx.Tx) (err error) {
		begun = true
		if idle == "" {
			if idle, err = idleLimit(ctx, tx); err != nil {
				return err
			}
			known[maxIdle] = idle
		}
		return fn(tx)
	})
	if err != nil && !begun {
		endFailed(ctx, conn)
		return l.notBegun(err)
	}
	return Translate(err)
}

func (l *Lease) notBegun(err error) error {
	return fmt.Errorf("fencing: begin and stamp for resource %q: %w", l.resource, Translate(err))
}

// beginSQL begins a transaction and stamps it. The first time on a connection this
// calls the function, which says what is wrong. What the function would set, then, is
// set without it, for less.
func (l *Lease) beginSQL(maxIdle int64, idle string) string {
	if idle == "" || !isPlain(l.resource) {
		return fmt.Sprintf("BEGIN; SELECT fencing.stamp(%s, '%d', '%d milliseconds')", literal(l.resource), l.Token(), maxIdle)
	}
	return fmt.Sprintf(`BEGIN; SELECT pg_catalog.set_config('fencing.stamps', '{"%s": %d}', true), `+
		`pg_catalog.set_config('idle_in_transaction_session_timeout', '%s', true)`, l.resource, l.Token(), idle)
}

// known is what is known of a connection on which a transaction has been stamped: for
// a MaxIdle in milliseconds, what the server makes of it, as it writes it, where the
// session has a limit of its own.
type known map[int64]string

// knownKey is the place in the data that pgx keeps with a connection.
const knownKey = "github.com/pgadvisory/pgadvisory/fencing"

func knownOf(conn *pgx.Conn) known {
	data := conn.PgConn().CustomData()
	k, ok := data[knownKey].(known)
	if !ok {
		k = make(known)
		data[knownKey] = k
	}
	return k
}

// idleLimit is how long the transaction may be idle. It prepares no statement, which a
// pooler might not expect.
func idleLimit(ctx context.Context, tx pgx.Tx) (string, error) {
	results, err := tx.Conn().PgConn().Exec(ctx, "SELECT pg_catalog.current_setting('idle_in_transaction_session_timeout')").ReadAll()
	if err != nil {
		return "", err
	}
	return string(results[0].Rows[0][0]), nil
}

// isPlain reports whether a text needs no escapes, in SQL and in JSON, whatever the
// session's settings are.
func isPlain(text string) bool {
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(" -_./:", rune(c)) {
			return false
		}
	}
	return true
}

// literal is a text in SQL, spelled so that no setting of the session decides how it
// is read.
func literal(text string) string {
	if isPlain(text) {
		return "'" + text + "'"
	}
	return fmt.Sprintf("pg_catalog.convert_from(pg_catalog.decode('%x', 'hex'), 'UTF8')", text)
}

// endFailed rolls back what a stamp that failed has left on a connection.
func endFailed(ctx context.Context, conn *pgx.Conn) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackLimit)
	defer cancel()
	_, _ = conn.Exec(ctx, "ROLLBACK") // on an error pgx closes the connection
}

// rollbackLimit bounds a rollback when ctx may have ended.
const rollbackLimit = 5 * time.Second
