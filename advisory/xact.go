package advisory

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// LockTx takes the lock for the rest of tx, in exclusive mode, and waits for it
// on the server. It is meant for a transaction that does all the guarded work
// itself, and for those who reach the server through a pooler in transaction
// mode, where a [Locker] can't work.
//
// The server frees the lock when the transaction ends, committed or not, and
// there is no other way to unlock. It excludes the locks of a Locker, which are
// the same locks. Taken twice in one transaction, or in a session that holds it
// already, it is granted at once. A rollback to a savepoint frees what was
// taken after the savepoint; releasing the savepoint frees nothing. After
// PREPARE TRANSACTION the lock belongs to the prepared transaction until that is
// committed or rolled back; the server refuses to prepare a transaction whose
// session holds the same lock as well.
//
// This is a plain wait, unlike that of [Locker.Lock]: while it lasts, the
// transaction keeps VACUUM from removing what has died since it began to wait,
// it can deadlock with others, CREATE INDEX CONCURRENTLY among them (40P01),
// and lock_timeout (55P03), statement_timeout (57014) and the like are in
// force. Those errors come as [pgconn.PgError], and the transaction, or its
// innermost savepoint, can only be rolled back then; that also frees whatever
// it got. In repeatable read and serializable, a transaction whose first
// statement this is does not see what the last holder has written: its snapshot
// is from before the wait. Use read committed.
//
// ctx bounds the wait. pgx by default closes the connection of a statement
// whose ctx ends, and the transaction is lost with it; the error matches ctx's.
// If ctx has ended before the call, nothing is sent and tx stays as it was.
// Nothing is sent for an invalid key either: the error matches [ErrInvalidKey].
//
// A pgx.Tx is not safe for concurrent use, and neither is LockTx with one.
func LockTx(ctx context.Context, tx pgx.Tx, key Key) error {
	return waitTx(ctx, tx, key, "lock tx", "pg_advisory_xact_lock")
}

// RLockTx is [LockTx] in shared mode: any number of sessions hold it at a time
// and exclude those who want it exclusively. Who waits for it exclusively goes
// first: a shared lock queues behind it. Two transactions that hold it shared
// and both want it exclusively deadlock.
func RLockTx(ctx context.Context, tx pgx.Tx, key Key) error {
	return waitTx(ctx, tx, key, "shared lock tx", "pg_advisory_xact_lock_shared")
}

// TryLockTx is [LockTx] without the wait: it returns an error that matches
// [ErrNotAcquired] when another session holds the lock, and the transaction
// stays usable.
func TryLockTx(ctx context.Context, tx pgx.Tx, key Key) error {
	return tryTx(ctx, tx, key, "try lock tx", "pg_try_advisory_xact_lock")
}

// TryRLockTx is [TryLockTx] in shared mode. It also returns ErrNotAcquired when
// another session waits for the lock exclusively.
func TryRLockTx(ctx context.Context, tx pgx.Tx, key Key) error {
	return tryTx(ctx, tx, key, "try shared lock tx", "pg_try_advisory_xact_lock_shared")
}

func waitTx(ctx context.Context, tx pgx.Tx, key Key, verb, function string) error {
	sql, args, err := prepareTx(ctx, tx, key, function)
	if err == nil {
		_, err = tx.Exec(ctx, sql, args...)
	}
	return txError(ctx, verb, key, err)
}

func tryTx(ctx context.Context, tx pgx.Tx, key Key, verb, function string) error {
	sql, args, err := prepareTx(ctx, tx, key, function)
	granted := false
	if err == nil {
		err = tx.QueryRow(ctx, sql, args...).Scan(&granted)
	}
	if err == nil && !granted {
		err = fmt.Errorf("%w: another session holds the lock or waits for it", ErrNotAcquired)
	}
	return txError(ctx, verb, key, err)
}

// prepareTx returns the statement that calls function, and refuses what can't
// be sent.
func prepareTx(ctx context.Context, tx pgx.Tx, key Key, function string) (string, []any, error) {
	if err := key.validate(); err != nil {
		return "", nil, err
	}
	switch {
	case ctx == nil:
		return "", nil, errNilContext
	case tx == nil:
		return "", nil, errors.New("the transaction is nil")
	}
	sql, args := lockproto.XactSQL(function, key.lockID())
	return sql, args, nil
}

// txError adds the cause of ctx's end, which pgx leaves out.
func txError(ctx context.Context, verb string, key Key, err error) error {
	if err == nil {
		return nil
	}
	if ctx == nil {
		return wrap(verb, []Key{key}, err)
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, ctx.Err()) && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return wrap(verb, []Key{key}, err)
}
