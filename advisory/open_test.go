package advisory_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// opened is a Locker on a pool of its own.
func (b *bundle) opened(t *testing.T) *advisory.Locker {
	t.Helper()
	locker, err := advisory.Open(t.Context(), b.via.DSN, b.usual(nil))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close(context.Background())) })
	return locker
}

// What goes another way than a lock that is free works on such a pool, whose
// sessions keep their settings.
func TestOpen_doesAllThatALockerDoes(t *testing.T) {
	t.Parallel()
	for name, lock := range map[string]func(context.Context, *advisory.Locker) (*advisory.Lock, error){
		"Lock": func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
			return l.Lock(ctx, advisory.ID(1))
		},
		"RLock": func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
			return l.RLock(ctx, advisory.ID(1))
		},
		"LockAll": func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
			return l.LockAll(ctx, advisory.ID(1), advisory.ID(2))
		},
		"Acquire": func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
			return l.Semaphore("one", 1).Acquire(ctx)
		},
		"pair": func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
			return l.Lock(ctx, advisory.Pair(1, 2))
		},
		"free all": func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
			return l.TryLockAll(ctx, advisory.ID(3), advisory.ID(4))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			other, locker := b.opened(t), b.opened(t)
			for range 2 { // the second time on a connection that was met
				waits := name != "free all"
				var held *advisory.Lock
				if waits {
					held = blocker(t, other, name)
				}
				type outcome struct {
					lock *advisory.Lock
					err  error
				}
				got := make(chan outcome, 1)
				go func() { // ends with the lock, which the test waits for
					lock, err := lock(t.Context(), locker)
					got <- outcome{lock, err}
				}()
				if waits {
					if name != "Acquire" {
						b.eventually(t, "it waits", func() bool { return b.waiting(t) > 0 })
					}
					require.NoError(t, held.Unlock(t.Context()))
				}
				o := <-got
				require.NoError(t, o.err)
				require.NoError(t, o.lock.Unlock(t.Context()))
			}
			b.noLockLeft(t)
		})
	}
}

// blocker takes what the other is to wait for.
func blocker(t *testing.T, l *advisory.Locker, name string) *advisory.Lock {
	t.Helper()
	var lock *advisory.Lock
	var err error
	switch name {
	case "Acquire":
		lock, err = l.Semaphore("one", 1).TryAcquire(t.Context())
	case "pair":
		lock, err = l.TryLock(t.Context(), advisory.Pair(1, 2))
	default:
		lock, err = l.TryLock(t.Context(), advisory.ID(1))
	}
	require.NoError(t, err)
	return lock
}

func TestOpen_holdsManyLocksOnOneSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	session, err := b.opened(t).Session(t.Context())
	require.NoError(t, err)
	lock, err := session.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, session.Close(t.Context()))
	b.noLockLeft(t)
}

// After a transaction on its session, of which the settings may have been
// changed, a lock goes to the next in line.
func TestOpen_passesASessionOnAfterATransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	locker := b.opened(t)
	first, err := locker.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	require.NoError(t, first.Tx(t.Context(), pgx.TxOptions{}, func(pgx.Tx) error { return nil }))
	got := make(chan error, 1)
	go func() { // ends with its lock, which the test waits for
		second, err := locker.Lock(t.Context(), advisory.ID(1))
		if err == nil {
			err = second.Unlock(t.Context())
		}
		got <- err
	}()
	b.eventually(t, "it is in line", func() bool {
		_, err := locker.TryLock(t.Context(), advisory.ID(1))
		return err != nil
	})
	require.NoError(t, first.Unlock(t.Context()))
	require.NoError(t, <-got)
	b.noLockLeft(t)
}

// A backend that a pooler has only lent is another client's the next moment.
func TestOpen_changesNothingBehindATransactionPooler(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if b.isOnPooler {
		b = &bundle{db: b.db, via: b.db, raw: b.raw}
	}
	pooled := *b.db
	pooled.DSN = b.db.PgBouncer(t, "transaction", "default_pool_size = 1")
	locker, err := advisory.Open(t.Context(), pooled.DSN, nil)
	require.NoError(t, err)
	_, err = locker.TryLock(t.Context(), advisory.ID(1))
	require.ErrorIs(t, err, advisory.ErrPooler)
	require.NoError(t, locker.Close(t.Context()))
	config, err := pgx.ParseConfig(pooled.DSN)
	require.NoError(t, err)
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(t.Context())) }()
	var changed bool
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_settings WHERE name LIKE 'tcp%' AND source = 'session')`).Scan(&changed))
	require.False(t, changed)
}
