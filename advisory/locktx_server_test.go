package advisory_test

import (
	"context"
	"crypto/rand"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func requireSQLState(t *testing.T, err error, code string) {
	t.Helper()
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	require.True(t, ok, "%v", err)
	require.Equal(t, code, pgErr.Code)
}

func TestLockTx_waitsUntilTheHolderEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder, waiter := begin(t, b.pool), begin(t, b.pool)
	waiterPID := int(pidOf(t, waiter))
	require.NoError(t, advisory.LockTx(t.Context(), holder, advisory.Pair(1, 2)))
	done := make(chan error, 1)
	go func() { done <- advisory.LockTx(context.Background(), waiter, advisory.Pair(1, 2)) }()
	b.eventually(t, "it waits", func() bool { return b.waiting(t) == 1 })
	require.True(t, scan[bool](t, b, "SELECT backend_xmin IS NOT NULL FROM pg_stat_activity WHERE pid = $1",
		waiterPID), "the wait holds back VACUUM")
	require.NoError(t, holder.Commit(t.Context()))
	require.NoError(t, <-done)
	require.Equal(t, []advisory.Mode{advisory.Exclusive}, b.modes(t, waiter, advisory.Pair(1, 2)))
}

func TestLockTx_cancelledWaitLosesTheTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder, waiter := begin(t, b.pool), begin(t, b.pool)
	require.NoError(t, advisory.LockTx(t.Context(), holder, advisory.ID(7)))
	require.NoError(t, advisory.LockTx(t.Context(), waiter, advisory.ID(8)))
	mine := errors.New("mine")
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() { done <- advisory.LockTx(ctx, waiter, advisory.ID(7)) }()
	b.eventually(t, "it waits", func() bool { return b.waiting(t) == 1 })
	cancel(mine)
	err := <-done
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, mine)
	require.True(t, waiter.Conn().IsClosed())
	b.eventually(t, "the server has rolled it back", func() bool { return b.waiting(t) == 0 && b.granted(t) == 1 })
	require.Error(t, waiter.Commit(t.Context()))
}

func TestLockTx_honoursTimeoutsOfTheServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := begin(t, b.pool)
	require.NoError(t, advisory.LockTx(t.Context(), holder, advisory.ID(7)))
	for setting, code := range map[string]string{"lock_timeout": "55P03", "statement_timeout": "57014"} {
		tx := begin(t, b.pool)
		require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.ID(8)))
		// It goes with the savepoint: what is not to wait is not to be timed either.
		limit := func(tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), "SET LOCAL "+setting+" = 20")
			require.NoError(t, err)
		}

		savepoint, err := tx.Begin(t.Context())
		require.NoError(t, err)
		limit(savepoint)
		requireSQLState(t, advisory.LockTx(t.Context(), savepoint, advisory.ID(7)), code)
		requireSQLState(t, advisory.LockTx(t.Context(), savepoint, advisory.ID(9)), "25P02")
		require.NoError(t, savepoint.Rollback(t.Context()))
		require.ErrorIs(t, advisory.TryLockTx(t.Context(), tx, advisory.ID(7)), advisory.ErrNotAcquired, "usable again")
		require.NotEmpty(t, b.modes(t, tx, advisory.ID(8)))

		limit(tx)
		requireSQLState(t, advisory.LockTx(t.Context(), tx, advisory.ID(7)), code)
		require.ErrorIs(t, tx.Commit(t.Context()), pgx.ErrTxCommitRollback)
		require.Equal(t, 1, b.granted(t))
	}
}

func TestLockTx_reportsADeadlock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two := begin(t, b.pool), begin(t, b.pool)
	require.NoError(t, advisory.RLockTx(t.Context(), one, advisory.ID(7)))
	require.NoError(t, advisory.RLockTx(t.Context(), two, advisory.ID(7)))
	errs := make(chan error, 2)
	for _, tx := range []pgx.Tx{one, two} {
		go func() {
			err := advisory.LockTx(context.Background(), tx, advisory.ID(7))
			if err != nil {
				_ = tx.Rollback(context.Background())
			}
			errs <- err
		}()
	}
	first, second := <-errs, <-errs
	if first == nil {
		first, second = second, first
	}
	requireSQLState(t, first, "40P01")
	require.NoError(t, second, "the other goes on")
	require.Equal(t, 2, b.granted(t))
}

func TestLockTx_savepoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := begin(t, b.pool)
	require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.ID(1)))

	undone, err := tx.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, advisory.LockTx(t.Context(), undone, advisory.ID(1)), "held from before")
	require.NoError(t, advisory.LockTx(t.Context(), undone, advisory.ID(2)))
	require.Equal(t, 2, b.granted(t))
	require.NoError(t, undone.Rollback(t.Context()))
	require.Equal(t, 1, b.granted(t), "a rollback frees what was taken after the savepoint, and only that")
	require.True(t, b.isHeldBy(t, 1, pidOf(t, tx)))

	kept, err := tx.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, advisory.LockTx(t.Context(), kept, advisory.ID(3)))
	require.NoError(t, kept.Commit(t.Context()))
	require.Equal(t, 2, b.granted(t), "releasing the savepoint frees nothing")
	require.NoError(t, tx.Commit(t.Context()))
	require.Zero(t, b.granted(t))
}

func TestLockTx_nextToALockOfTheSameSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn := b.via.Conn(t)
	exec(t, conn, "SELECT pg_advisory_lock(7)")
	require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		return errors.Join(advisory.LockTx(t.Context(), tx, advisory.ID(7)), advisory.TryLockTx(t.Context(), tx, advisory.ID(7)))
	}))
	require.True(t, b.isHeldBy(t, 7, pidOf(t, conn)), "the session's lock stays")
	exec(t, conn, "SELECT pg_advisory_unlock(7)")
	require.Zero(t, b.granted(t))
}

func TestLockTx_isHeldByAPreparedTransaction(t *testing.T) {
	t.Parallel()
	b := setupWith(t, pgtest.PreparedTransactions)
	conn, gid := b.via.Conn(t), rand.Text()
	exec(t, conn, "SELECT pg_advisory_lock(8)")
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.ID(7)))
	exec(t, conn, "PREPARE TRANSACTION '"+gid+"'")

	require.True(t, scan[bool](t, b, "SELECT pid IS NULL "+advisoryLocks+" AND objid = 7"))
	require.True(t, b.isHeldBy(t, 8, pidOf(t, conn)), "the session keeps its own")
	_, err = b.locker.TryLock(t.Context(), advisory.ID(7))
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	exec(t, conn, "COMMIT PREPARED '"+gid+"'")
	require.Equal(t, 1, b.granted(t))

	tx, err = conn.Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.ID(8)))
	_, err = tx.Exec(t.Context(), "PREPARE TRANSACTION '"+gid+"'")
	requireSQLState(t, err, "0A000")
}

// The transaction of a pool, and the only connection of it.
func TestLockTx_leavesNothingInAPool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool := b.via.Pool(t, maxConns(1))
	var pids []uint32
	for range 20 {
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			pids = append(pids, pidOf(t, tx))
			return errors.Join(advisory.LockTx(t.Context(), tx, advisory.ID(7)), advisory.RLockTx(t.Context(), tx, advisory.ID(8)))
		}))
		require.Zero(t, b.granted(t))
	}
	mine := errors.New("mine")
	require.Equal(t, mine, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.ID(7)))
		return mine
	}))
	require.Zero(t, b.granted(t))
	require.EqualValues(t, 1, pool.Stat().NewConnsCount())
	require.Len(t, pids, 20)
}

func TestLockTx_snapshotIsFromBeforeTheWaitInRepeatableRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.session(t), "CREATE TABLE seen (n int); INSERT INTO seen VALUES (1)")
	for level, want := range map[pgx.TxIsoLevel]int{pgx.ReadCommitted: 2, pgx.RepeatableRead: 1, pgx.Serializable: 1} {
		exec(t, b.session(t), "UPDATE seen SET n = 1")
		holder := begin(t, b.pool)
		require.NoError(t, advisory.LockTx(t.Context(), holder, advisory.ID(7)))
		_, err := holder.Exec(t.Context(), "UPDATE seen SET n = 2")
		require.NoError(t, err)
		done := make(chan error, 1)
		n := 0
		go func() {
			done <- pgx.BeginTxFunc(context.Background(), b.pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				return errors.Join(advisory.LockTx(context.Background(), tx, advisory.ID(7)),
					tx.QueryRow(context.Background(), "SELECT n FROM seen").Scan(&n))
			})
		}()
		b.eventually(t, "it waits", func() bool { return b.waiting(t) == 1 })
		require.NoError(t, holder.Commit(t.Context()))
		require.NoError(t, <-done)
		require.Equal(t, want, n, level)
	}
}

// A role's search_path may put functions of the same name first.
func TestLockTx_callsTheServersFunctions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.session(t), `CREATE SCHEMA evil;
		CREATE FUNCTION evil.pg_advisory_xact_lock(bigint) RETURNS void LANGUAGE sql AS 'SELECT';
		CREATE FUNCTION evil.pg_try_advisory_xact_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'`)
	pool := b.via.Pool(t, setting("search_path", "evil, pg_catalog"))
	tx := begin(t, pool)
	require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.ID(7)))
	require.NoError(t, advisory.TryLockTx(t.Context(), tx, advisory.ID(8)))
	require.Equal(t, 2, b.granted(t))
}
