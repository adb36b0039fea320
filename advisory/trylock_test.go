package advisory_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func TestTryLock_holdsOnTheServerUntilUnlock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, key := range []advisory.Key{
		advisory.Name("nightly-export"), advisory.ID(42), advisory.ID(-1), advisory.ID(1<<63 - 1), advisory.ID(-1 << 63),
	} {
		lock, err := b.locker.TryLock(t.Context(), key)
		require.NoError(t, err, key)
		require.Equal(t, []advisory.Key{key}, lock.Keys())
		require.Equal(t, 1, b.granted(t))
		require.Equal(t, int(lock.BackendPID()), scan[int](t, b, "SELECT pid "+advisoryLocks))
		require.False(t, scan[bool](t, b, "SELECT pg_try_advisory_lock("+key.SQL()+")"), key)
		require.NoError(t, lock.Err())
		require.False(t, isClosed(lock.Done()))

		require.NoError(t, lock.Unlock(t.Context()), key)
		require.Zero(t, b.granted(t))
		require.ErrorIs(t, lock.Err(), advisory.ErrUnlocked)
		require.True(t, isClosed(lock.Done()))
	}
	b.leakCheck(t)
}

func TestTryLock_returnsErrNotAcquiredWhenAnotherSessionHolds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.session(t)
	exec(t, other, "SELECT pg_advisory_lock(7)")

	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.Nil(t, lock, "case 6: no handle comes with an error")
	require.Equal(t, 1, b.granted(t))
	require.Zero(t, b.pool.Stat().AcquiredConns())
}

func TestTryLock_isNotReentrant(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(3))
	key := advisory.Name("case 15")
	lock, err := b.locker.TryLock(t.Context(), key)
	require.NoError(t, err)

	before := b.pool.Stat().AcquireCount()
	for range 1000 {
		_, err := b.locker.TryLock(t.Context(), key)
		require.ErrorIs(t, err, advisory.ErrNotAcquired)
	}
	require.Equal(t, before, b.pool.Stat().AcquireCount(), "what the Locker holds it knows without a round trip")

	_, other := b.another(t, nil)
	_, err = other.TryLock(t.Context(), key)
	require.ErrorIs(t, err, advisory.ErrNotAcquired, "nor from another pool of the process")
	require.NoError(t, lock.Unlock(t.Context()), "case 77: one unlock frees it")
	b.leakCheck(t)
}

func TestTryLock_locksOfDifferentKindsAreApart(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(4))
	// Case 67: one bigint and two ints are spaces of their own, even where the
	// bits are the same.
	_, err := b.locker.TryLock(t.Context(), advisory.ID(5<<32|7))
	require.NoError(t, err)
	pair, err := b.locker.TryLock(t.Context(), advisory.Pair(5, 7))
	require.NoError(t, err)
	require.Equal(t, 2, b.granted(t))
	require.NoError(t, pair.Unlock(t.Context()))

	for _, p := range [][2]int32{{0, 0}, {-1, -1}, {1<<31 - 1, -1 << 31}} {
		key := advisory.Pair(p[0], p[1])
		lock, err := b.locker.TryLock(t.Context(), key)
		require.NoError(t, err, key)
		require.False(t, scan[bool](t, b, "SELECT pg_try_advisory_lock("+key.SQL()+")"), key)
		require.NoError(t, lock.Unlock(t.Context()), key)
	}
}

func TestTryLock_sameLockByNameAndByNumber(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(4))
	id := scan[int64](t, b, "SELECT hashtextextended('nightly-export', 0)")
	lock, err := b.locker.TryLock(t.Context(), advisory.Name("nightly-export"))
	require.NoError(t, err)
	require.True(t, b.isHeldBy(t, id, lock.BackendPID()))
	_, err = b.locker.TryLock(t.Context(), advisory.ID(id))
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
}

func TestTryLock_databasesAreApart(t *testing.T) {
	t.Parallel()
	a, b := setup(t), setup(t)
	key := advisory.Name("case 66")
	_, err := a.locker.TryLock(t.Context(), key)
	require.NoError(t, err)
	_, err = b.locker.TryLock(t.Context(), key)
	require.NoError(t, err)
}

func TestTryLock_doesNotTrustLocksThatAConnectionArrivesWith(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	// Case 48: other code leaks locks into the pool, which has two connections.
	leaky, err := b.pool.Acquire(t.Context())
	require.NoError(t, err)
	sound, err := b.pool.Acquire(t.Context())
	require.NoError(t, err)
	exec(t, leaky.Conn(), "SELECT pg_advisory_lock(7), pg_advisory_lock(7), pg_advisory_lock(8)")

	leaky.Release() // the other one is busy: the Locker draws this one
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
	require.Equal(t, 1, b.granted(t), "what the connection came with is cleared")
	require.NoError(t, lock.Unlock(t.Context()))
	require.Zero(t, b.granted(t), "one unlock frees it, whatever was there before")

	leaky, err = b.pool.Acquire(t.Context())
	require.NoError(t, err)
	exec(t, leaky.Conn(), "SELECT pg_advisory_lock(7)")
	sound.Release() // now the Locker draws the other one
	_, err = b.locker.TryLock(t.Context(), advisory.ID(7))
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	exec(t, leaky.Conn(), "SELECT pg_advisory_unlock_all()")
	leaky.Release()
}

func TestTryLock_worksInEveryExecMode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// Case 73: the casts are explicit, so the mode decides nothing.
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		pool, locker := b.another(t, nil, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		for _, key := range []advisory.Key{advisory.ID(-5), advisory.Pair(-5, -6)} {
			lock, err := locker.TryLock(t.Context(), key)
			require.NoError(t, err, mode)
			require.Equal(t, 1, b.granted(t))
			require.NoError(t, lock.Unlock(t.Context()), mode)
			require.Zero(t, b.granted(t))
		}
		require.Zero(t, pool.Stat().AcquiredConns())
	}
}

func TestTryLock_refusesKeysThatNameNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, key := range []advisory.Key{{}, advisory.Name(""), advisory.Name("a\x00b"), advisory.Name("\xff")} {
		_, err := b.locker.TryLock(t.Context(), key)
		require.ErrorIs(t, err, advisory.ErrInvalidKey)
		_, err = b.locker.Lock(t.Context(), key)
		require.ErrorIs(t, err, advisory.ErrInvalidKey)
	}
	require.Zero(t, b.pool.Stat().AcquireCount())
}

// A role's search_path may put functions of the same name before the server's.
func TestLock_asksTheServersOwnFunctions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.session(t)
	exec(t, s, "CREATE DOMAIN public.text AS pg_catalog.text CHECK (false)")
	for _, f := range []string{
		"pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
		"pg_advisory_unlock(bigint) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
		"pg_advisory_lock(bigint) RETURNS void LANGUAGE sql AS ''",
		"pg_advisory_unlock_all() RETURNS void LANGUAGE sql AS ''",
		"current_setting(pg_catalog.text) RETURNS pg_catalog.text LANGUAGE sql AS $$ SELECT 'yes'::pg_catalog.text $$",
	} {
		exec(t, s, "CREATE FUNCTION public."+f)
	}
	_, locker := b.another(t, nil, setting("search_path", "public, pg_catalog"))
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
	require.NoError(t, lock.Unlock(t.Context()))
	require.Zero(t, b.granted(t))

	exec(t, s, "SELECT pg_catalog.pg_advisory_lock(7)")
	got := b.lockInBackground(t, locker, advisory.ID(7))
	exec(t, s, "SELECT pg_catalog.pg_advisory_unlock(7)")
	lock = <-got
	require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
}

func TestLock_saysThatItNeedsPlpgsql(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.session(t)
	role := "advisory_plain_" + b.db.Name
	exec(t, s, "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'")
	t.Cleanup(func() { _, _ = b.raw.Exec(context.Background(), "DROP ROLE "+role) })
	exec(t, s, "REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC")
	exec(t, s, "SELECT pg_advisory_lock(7)")
	_, locker := b.another(t, nil, func(c *pgxpool.Config) {
		c.ConnConfig.User, c.ConnConfig.Password = role, "secret"
	})
	_, err := locker.Lock(t.Context(), advisory.ID(7))
	require.ErrorContains(t, err, "plpgsql, and USAGE on it")
}
