package advisory_test

import (
	"context"
	"math"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// lockTx is one of the four functions.
type lockTx func(context.Context, pgx.Tx, advisory.Key) error

var lockTxs = map[string]struct {
	lock lockTx
	mode advisory.Mode
}{
	"LockTx":     {advisory.LockTx, advisory.Exclusive},
	"TryLockTx":  {advisory.TryLockTx, advisory.Exclusive},
	"RLockTx":    {advisory.RLockTx, advisory.Shared},
	"TryRLockTx": {advisory.TryRLockTx, advisory.Shared},
}

// begin begins a transaction on a connection of a pool, and rolls it back at
// the test's end if nothing else has ended it.
func begin(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// modes are those in which the transaction's session holds a lock.
func (b *bundle) modes(t *testing.T, tx pgx.Tx, key advisory.Key) []advisory.Mode {
	t.Helper()
	pid := pidOf(t, tx)
	var modes []advisory.Mode
	for _, s := range b.inspect(t, key) {
		if s.PID == pid && s.Granted {
			modes = append(modes, s.Mode)
		}
	}
	return modes
}

func TestLockTx_holdsUntilTheTransactionEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, f := range lockTxs {
		for end, finish := range map[string]func(pgx.Tx) error{
			"commit":   func(tx pgx.Tx) error { return tx.Commit(t.Context()) },
			"rollback": func(tx pgx.Tx) error { return tx.Rollback(t.Context()) },
		} {
			tx := begin(t, b.pool)
			require.NoError(t, f.lock(t.Context(), tx, advisory.ID(7)), name)
			require.NoError(t, f.lock(t.Context(), tx, advisory.ID(7)), "re-entrant")
			require.Equal(t, 1, b.granted(t), name)
			require.True(t, b.isHeldBy(t, 7, pidOf(t, tx)), name)
			require.Equal(t, map[advisory.Mode]string{advisory.Exclusive: "ExclusiveLock", advisory.Shared: "ShareLock"}[f.mode],
				scan[string](t, b, "SELECT mode "+advisoryLocks), name)
			require.NoError(t, finish(tx), end)
			require.Zero(t, b.granted(t), "%s, %s", name, end)
		}
	}
}

func TestLockTx_worksInEveryExecMode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		pool := b.via.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		for name, f := range lockTxs {
			keys := []advisory.Key{
				advisory.ID(math.MinInt64), advisory.ID(-1), advisory.ID(math.MaxInt64), advisory.Name("nightly-export"),
				advisory.Pair(-5, -6), advisory.Pair(math.MinInt32, math.MaxInt32),
			}
			tx := begin(t, pool)
			for _, key := range keys {
				require.NoError(t, f.lock(t.Context(), tx, key), "%s %s %s", name, mode, key)
				require.Equal(t, []advisory.Mode{f.mode}, b.modes(t, tx, key), "%s %s %s", name, mode, key)
			}
			require.Equal(t, len(keys), b.granted(t))
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}
}

func TestLockTx_excludesALocker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := begin(t, b.pool)
	require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.Name("x")))
	_, err := b.locker.TryLock(t.Context(), advisory.Name("x"))
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.NoError(t, tx.Commit(t.Context()))

	lock, err := b.locker.TryLock(t.Context(), advisory.Name("x"))
	require.NoError(t, err)
	tx = begin(t, b.pool)
	err = advisory.TryLockTx(t.Context(), tx, advisory.Name("x"))
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.ErrorContains(t, err, `advisory: try lock tx "x" (`)
	require.ErrorIs(t, advisory.TryRLockTx(t.Context(), tx, advisory.Name("x")), advisory.ErrNotAcquired)
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, advisory.TryLockTx(t.Context(), tx, advisory.Name("x")), "the transaction is usable")
}

func TestRLockTx_isShared(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one, two, writer := begin(t, b.pool), begin(t, b.pool), begin(t, b.pool)
	require.NoError(t, advisory.RLockTx(t.Context(), one, advisory.ID(7)))
	require.NoError(t, advisory.TryRLockTx(t.Context(), two, advisory.ID(7)))
	require.ErrorIs(t, advisory.TryLockTx(t.Context(), writer, advisory.ID(7)), advisory.ErrNotAcquired)
	require.ErrorIs(t, advisory.TryLockTx(t.Context(), one, advisory.ID(7)), advisory.ErrNotAcquired)
	require.NoError(t, two.Rollback(t.Context()))
	require.NoError(t, advisory.TryLockTx(t.Context(), one, advisory.ID(7)), "the only one that shares it")
	require.Equal(t, []advisory.Mode{advisory.Exclusive, advisory.Shared}, b.modes(t, one, advisory.ID(7)))
}

func TestRLockTx_queuesBehindAWriter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reader, writer, late := begin(t, b.pool), begin(t, b.pool), begin(t, b.pool)
	require.NoError(t, advisory.RLockTx(t.Context(), reader, advisory.ID(7)))
	done := make(chan error, 1)
	go func() { done <- advisory.LockTx(context.Background(), writer, advisory.ID(7)) }()
	b.eventually(t, "the writer waits", func() bool { return b.waiting(t) == 1 })
	require.ErrorIs(t, advisory.TryRLockTx(t.Context(), late, advisory.ID(7)), advisory.ErrNotAcquired)
	require.NoError(t, reader.Commit(t.Context()))
	require.NoError(t, <-done)
	require.True(t, b.isHeldBy(t, 7, pidOf(t, writer)))
}

func TestLockTx_refusesWhatItCannotSend(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := begin(t, b.pool)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for name, f := range lockTxs {
		for _, key := range []advisory.Key{{}, advisory.Name(""), advisory.Name("\xff")} {
			// Without a round trip: even this context would not fail otherwise.
			require.ErrorIs(t, f.lock(ctx, tx, key), advisory.ErrInvalidKey, name)
		}
		require.ErrorContains(t, f.lock(t.Context(), nil, advisory.ID(7)), "the transaction is nil", name)
		require.ErrorIs(t, f.lock(ctx, tx, advisory.ID(7)), context.Canceled, name)
		require.NoError(t, f.lock(t.Context(), tx, advisory.ID(8)), "the transaction is as it was")
	}
	require.NoError(t, tx.Commit(t.Context()))
	require.ErrorIs(t, advisory.LockTx(t.Context(), tx, advisory.ID(7)), pgx.ErrTxClosed)
}
