package advisory_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgscript"
)

// The numbers of the cases are those of docs/field-cases.md.

// Case 5: no new connection comes through, and with it no cancel request.
func TestLock_needsNoCancelRequestToEndAWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := b.proxy(t)
	pool, locker := b.another(t, nil, through(proxy), maxConns(2))
	first, err := locker.TryLock(t.Context(), advisory.ID(8)) // connects
	require.NoError(t, err)
	require.NoError(t, first.Unlock(t.Context()))
	holder := b.session(t)
	exec(t, holder, "SELECT pg_advisory_lock(7)")
	proxy.RefuseNew(true)

	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	elapsed := timed(t)
	_, err = locker.Lock(ctx, advisory.ID(7))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, elapsed(), 2*time.Second)
	exec(t, holder, "SELECT pg_advisory_unlock(7)")
	b.noLockLeft(t)
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.Equal(t, first.BackendPID(), lock.BackendPID(), "it was not given up")
	require.NoError(t, lock.Unlock(t.Context()))
	require.EqualValues(t, 1, pool.Stat().NewConnsCount())
}

// Case 23: the server aborts a transaction on the session of the lock.
func TestDo_keepsTheErrorOfATransactionOnItsSession(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	for _, code := range []string{"40001", "40P01", "57014"} {
		err := b.locker.Do(t.Context(), advisory.ID(7), func(ctx context.Context, lock *advisory.Lock) error {
			return lock.Tx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "DO $$ BEGIN RAISE SQLSTATE '"+code+"'; END $$")
				return err
			})
		})
		requireSQLState(t, err, code)
		require.NotErrorIs(t, err, advisory.ErrLost)
		require.Zero(t, b.granted(t))
	}
	require.EqualValues(t, 1, b.pool.Stat().NewConnsCount())
	b.leakCheck(t)
}

// Case 43: a holder that hangs in a transaction, and somebody who waits for it.
func TestInspect_tellsAWedgeFromContention(t *testing.T) {
	t.Parallel()
	b := setup(t)
	wedged := b.db.Conn(t, application("drain"))
	exec(t, wedged, "BEGIN")
	exec(t, wedged, "SELECT pg_try_advisory_xact_lock(7)")
	_, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	got := b.lockInBackground(t, b.locker, advisory.ID(7))

	var waiter advisory.Status
	b.eventually(t, "both are shown", func() bool {
		all := b.inspect(t, advisory.ID(7))
		if len(all) != 2 { // between two questions of the waiter
			return false
		}
		waiter = all[1]
		holder := all[0]
		require.Equal(t, wedged.PgConn().PID(), holder.PID)
		require.Equal(t, "drain", holder.Application)
		require.Equal(t, "idle in transaction", holder.State)
		require.False(t, holder.BackendStart.IsZero())
		require.Positive(t, holder.QueryAge(), "since when it has done nothing")
		return len(waiter.BlockedBy) == 1
	})
	require.Equal(t, []uint32{wedged.PgConn().PID()}, waiter.BlockedBy)
	exec(t, wedged, "ROLLBACK")
	require.NoError(t, (<-got).Unlock(t.Context()))
}

// Cases 53 and 54: each connection expires while its lock is held; or none
// does, which is what pgx means by a lifetime of 0.
func TestUnlock_freesTheLockOfAnExpiredConnection(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for lifetime, connections := range map[time.Duration]int64{0: 1, 200 * time.Millisecond: 5} {
		pool, locker := b.another(t, nil, maxConns(2), func(c *pgxpool.Config) { c.MaxConnLifetime = lifetime })
		for range 5 {
			lock, err := locker.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err, lifetime)
			exec(t, b.session(t), "SELECT pg_sleep($1)", (lifetime + 10*time.Millisecond).Seconds())
			require.NoError(t, lock.Err())
			require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
			require.NoError(t, lock.Unlock(t.Context()))
			require.True(t, scan[bool](t, b, "SELECT pg_try_advisory_xact_lock(7)"), "free when Unlock returns")
		}
		require.GreaterOrEqual(t, pool.Stat().NewConnsCount(), connections)
	}
}

// Cases 25 and 56: the pool has one connection, and each step goes wrong once.
func TestLocker_leavesThePoolUsableWhicheverStepFails(t *testing.T) {
	t.Parallel()
	fail := pgscript.Fail("57014", "canceling statement due to user request")
	for name, c := range map[string]struct {
		handlers []pgscript.Handler
		run      func(*advisory.Locker) error
	}{
		"meeting the session": {
			[]pgscript.Handler{pgscript.On("pg_is_in_recovery", fail, nil)},
			tryOnce,
		},
		"trying": {
			[]pgscript.Handler{pgscript.On("pg_try_advisory_lock(", fail, nil)},
			tryOnce,
		},
		"waiting": {
			[]pgscript.Handler{pgscript.On("$pgadvisory$", fail, nil), pgscript.On("pg_try_advisory_lock(", pgscript.Row(pgscript.Bool(false)), nil)},
			func(l *advisory.Locker) error {
				_, err := l.Lock(context.Background(), advisory.ID(7))
				return err
			},
		},
		"trying several": {
			[]pgscript.Handler{pgscript.On("pg_try_advisory_lock(", fail, nil)},
			func(l *advisory.Locker) error {
				_, err := l.TryLockAll(context.Background(), ids(1, 2)...)
				return err
			},
		},
		"waiting for several": {
			[]pgscript.Handler{pgscript.On("$pgadvisory$", fail, nil), pgscript.On("pg_try_advisory_lock(", pgscript.Row(pgscript.Bool(false)), nil)},
			func(l *advisory.Locker) error {
				_, err := l.LockAll(context.Background(), ids(1, 2)...)
				return err
			},
		},
		"unlocking, as often as it is tried": {
			[]pgscript.Handler{
				pgscript.On("pg_try_advisory_lock(", pgscript.Row(pgscript.Bool(true))),
				pgscript.On("pg_advisory_unlock(", fail),
			},
			tryOnce,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peer := pgscript.Serve(t, c.handlers...)
			config, err := pgxpool.ParseConfig(peer.DSN())
			require.NoError(t, err)
			config.MaxConns = 1
			pool, err := pgxpool.NewWithConfig(t.Context(), config)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			locker, err := advisory.New(pool, patient(&advisory.Config{Reserve: advisory.NoReserve}))
			require.NoError(t, err)
			t.Cleanup(func() { _ = locker.Close(context.Background()) }) // or the pool would not close after a failure

			require.ErrorContains(t, c.run(locker), "57014")
			require.Zero(t, pool.Stat().TotalConns(), "its session was ended")
			require.NoError(t, pool.Ping(t.Context()))
			require.Zero(t, pool.Stat().AcquiredConns())
			require.Equal(t, 2, peer.Sessions())
			require.NoError(t, locker.Close(t.Context()))
		})
	}
}

// tryOnce locks and unlocks.
func tryOnce(l *advisory.Locker) error {
	lock, err := l.TryLock(context.Background(), advisory.ID(7))
	if err != nil {
		return err
	}
	return lock.Unlock(context.Background())
}

// Case 60: everybody holds, no connection is left, and all do their work.
func TestLockTx_needsNoConnectionOfThePool(t *testing.T) {
	t.Parallel()
	const n = 4
	b := setupConfig(t, &advisory.Config{Reserve: advisory.NoReserve}, maxConns(n))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var all, work sync.WaitGroup
	all.Add(n)
	for i := range n {
		work.Go(func() {
			err := b.locker.Do(ctx, advisory.ID(int64(i)), func(ctx context.Context, lock *advisory.Lock) error {
				all.Done()
				all.Wait()
				return lock.Tx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
					_, err := tx.Exec(ctx, "SELECT 1")
					return err
				})
			})
			if err != nil {
				t.Error(err)
				all.Done()
			}
		})
	}
	work.Wait()
	b.leakCheck(t)
}

// Case 63: ten locks, one after the other.
func TestUnlock_leavesNoConnectionBehind(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool, locker := b.another(t, nil, setting("application_name", "billing"))
	for i := range 10 {
		lock, err := locker.Lock(t.Context(), advisory.ID(int64(i)))
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	}
	require.EqualValues(t, 1, pool.Stat().NewConnsCount())
	require.Equal(t, 1, scan[int](t, b, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '%billing'"))
}
