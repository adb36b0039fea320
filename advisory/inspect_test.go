package advisory_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// inspect looks with the observer.
func (b *bundle) inspect(t *testing.T, keys ...advisory.Key) []advisory.Status {
	t.Helper()
	statuses, err := advisory.Inspect(t.Context(), b.raw, keys...)
	require.NoError(t, err)
	return statuses
}

func keysOf(statuses []advisory.Status) []advisory.Key {
	keys := []advisory.Key{}
	for _, s := range statuses {
		keys = append(keys, s.Key)
	}
	return keys
}

// extremes are in the order in which Inspect returns them.
var extremes = []advisory.Key{
	advisory.ID(math.MinInt64), advisory.ID(-1 << 32), advisory.ID(-1 << 31), advisory.ID(-1), advisory.ID(0), advisory.ID(1),
	advisory.ID(math.MaxInt32), advisory.ID(1 << 31), advisory.ID(0xFFFFFFFF), advisory.ID(1 << 32), advisory.ID(math.MaxInt64),
	advisory.Pair(math.MinInt32, math.MaxInt32), advisory.Pair(math.MinInt32, math.MinInt32), advisory.Pair(-1, -1),
	advisory.Pair(0, 0), advisory.Pair(0, 1), advisory.Pair(0, -1), advisory.Pair(1, 0), advisory.Pair(math.MaxInt32, math.MaxInt32), advisory.Pair(math.MaxInt32, math.MinInt32),
}

func TestInspect_decodesEveryKey(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn := b.session(t)
	for _, i := range rand.Perm(len(extremes)) {
		exec(t, conn, "SELECT pg_advisory_lock("+extremes[i].SQL()+")")
	}
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		observer := b.db.Conn(t, func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = mode })
		all, err := advisory.Inspect(t.Context(), observer)
		require.NoError(t, err, mode)
		require.Equal(t, extremes, keysOf(all), mode)
		for _, key := range extremes {
			one, err := advisory.Inspect(t.Context(), observer, key)
			require.NoError(t, err, mode)
			require.Equal(t, []advisory.Key{key}, keysOf(one), mode)
		}
		two, err := advisory.Inspect(t.Context(), observer, advisory.Pair(0, 1), advisory.ID(-1), advisory.ID(-1), advisory.ID(42))
		require.NoError(t, err, mode)
		require.Equal(t, []advisory.Key{advisory.ID(-1), advisory.Pair(0, 1)}, keysOf(two), mode)
	}
	require.Empty(t, b.inspect(t, advisory.ID(42)))
}

func TestInspect_keepsNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	name := advisory.Name("a")
	number := advisory.ID(golden["a"])
	lock, err := b.locker.TryLock(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, []advisory.Key{name}, keysOf(b.inspect(t, advisory.ID(7), name)))
	require.Equal(t, []advisory.Key{name}, keysOf(b.inspect(t, name, number)), "the first one given")
	require.Equal(t, []advisory.Key{number}, keysOf(b.inspect(t, number, name)))
	require.Equal(t, []advisory.Key{number}, keysOf(b.inspect(t)), "the server knows no names")
	require.Equal(t, lock.BackendPID(), b.inspect(t, name)[0].PID)
}

func TestInspect_showsHoldersAndWaiters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := advisory.Pair(-1, 7)
	one := b.db.Conn(t, application("one"))
	two := b.db.Conn(t, application("two"))
	three := b.db.Conn(t, application("three"))
	pid := func(c *pgx.Conn) uint32 { return c.PgConn().PID() }
	exec(t, one, "SELECT pg_advisory_lock_shared(-1, 7)")
	done := make(chan error, 2)
	wait := func(conn *pgx.Conn, function string, waiting int) {
		go func() {
			_, err := conn.Exec(context.Background(), "SELECT "+function+"(-1, 7)")
			done <- err
		}()
		b.eventually(t, "it waits", func() bool {
			n := 0
			for _, s := range b.inspect(t, key) {
				if !s.Granted && (b.db.Server.Version() < 140000 || !s.WaitStart.IsZero()) {
					n++
				}
			}
			return n == waiting
		})
	}
	wait(two, "pg_advisory_lock", 1)
	wait(three, "pg_advisory_lock_shared", 2)

	statuses := b.inspect(t, key)
	require.Len(t, statuses, 3)
	holder, waiter, last := statuses[0], statuses[1], statuses[2]
	if b.db.Server.Version() < 140000 && last.PID == pid(two) {
		waiter, last = last, waiter
	}
	require.Equal(t, advisory.Shared, holder.Mode)
	require.True(t, holder.Granted)
	require.Equal(t, pid(one), holder.PID)
	require.Nil(t, holder.BlockedBy)
	require.Equal(t, "one", holder.Application)
	require.Equal(t, "idle", holder.State)
	require.Zero(t, holder.WaitStart)
	require.Zero(t, holder.WaitAge())
	require.Positive(t, holder.QueryAge())

	require.Equal(t, advisory.Exclusive, waiter.Mode)
	require.False(t, waiter.Granted)
	require.Equal(t, pid(two), waiter.PID)
	require.Equal(t, []uint32{pid(one)}, waiter.BlockedBy)
	require.Equal(t, "active", waiter.State)
	if b.db.Server.Version() >= 140000 {
		require.Positive(t, waiter.WaitAge())
		require.GreaterOrEqual(t, waiter.QueryAge(), waiter.WaitAge())
	}

	require.Equal(t, pid(three), last.PID)
	require.Equal(t, []uint32{pid(two)}, last.BlockedBy, "a shared lock queues behind")
	for _, s := range statuses {
		require.Equal(t, key, s.Key)
		require.Equal(t, b.raw.Config().ConnConfig.User, s.User)
		require.True(t, s.ClientAddr.IsLoopback(), s.ClientAddr)
		require.Empty(t, s.Prepared)
		require.False(t, s.BackendStart.IsZero())
		require.False(t, s.QueryStart.Before(s.BackendStart))
		require.False(t, s.StateChange.Before(s.QueryStart))
		require.False(t, s.At.Before(s.StateChange))
	}
	exec(t, one, "SELECT pg_advisory_unlock_all()")
	require.NoError(t, <-done)
	exec(t, two, "SELECT pg_advisory_unlock_all()")
	require.NoError(t, <-done)
}

func application(name string) func(*pgx.ConnConfig) {
	return func(c *pgx.ConnConfig) { c.RuntimeParams["application_name"] = name }
}

func TestInspect_showsBothModesOfOneSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn := b.session(t)
	exec(t, conn, "SELECT pg_advisory_lock(7), pg_advisory_lock_shared(7)")
	statuses := b.inspect(t)
	require.Len(t, statuses, 2)
	require.Equal(t, advisory.Exclusive, statuses[0].Mode)
	require.Equal(t, advisory.Shared, statuses[1].Mode)
	require.Equal(t, statuses[0].PID, statuses[1].PID)
}

func TestInspect_refusesWhatItCannotAsk(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *pgxpool.Config) { c.MinConns = 0 })
	_, err := advisory.Inspect(t.Context(), b.pool, advisory.ID(7), advisory.Key{})
	require.ErrorIs(t, err, advisory.ErrInvalidKey)
	require.Zero(t, b.pool.Stat().AcquireCount())
	_, err = advisory.Inspect(t.Context(), nil)
	require.ErrorContains(t, err, "the database is nil")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = advisory.Inspect(ctx, b.pool)
	require.ErrorIs(t, err, context.Canceled)
}
