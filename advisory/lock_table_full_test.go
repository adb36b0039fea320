package advisory_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// greedy is other software that leaves the server no room for a lock, except for
// those whose keys it gives back.
type greedy struct {
	session *pgx.Conn
	last    int
}

func (b *bundle) greedy(t *testing.T) *greedy {
	t.Helper()
	g := &greedy{session: b.session(t)}
	exec(t, g.session, `DO $$
		DECLARE last int := 1000000;
		BEGIN
			LOOP
				PERFORM pg_advisory_lock(last + 1);
				last := last + 1;
			END LOOP;
		EXCEPTION WHEN out_of_memory THEN -- 53200, and what it holds it keeps
			PERFORM set_config('test.last', last::text, false);
		END $$`)
	require.NoError(t, g.session.QueryRow(t.Context(), "SELECT current_setting('test.last')::int").Scan(&g.last))
	require.Greater(t, g.last, 1000100)
	return g
}

func (g *greedy) release(t *testing.T, n int) {
	t.Helper()
	for range n {
		exec(t, g.session, "SELECT pg_advisory_unlock($1)", g.last)
		g.last--
	}
}

// smallServer is a server of the test's own with a lock table that is soon full,
// and an observer that is connected: a new connection takes a lock too.
func smallServer(t *testing.T, configure ...func(*pgxpool.Config)) *bundle {
	t.Helper()
	b := setupOn(t, pgtest.StartWith(t, "max_locks_per_transaction=10", "max_connections=20",
		"max_prepared_transactions=0", "autovacuum=off"), nil, configure...)
	b.warm(t)
	return b
}

// warm has every statement of the Locker run once, whose plans are locks too.
func (b *bundle) warm(t *testing.T) {
	t.Helper()
	for _, m := range slices.Concat(locking, lockingToo[:2]) {
		lock, err := m.call(t.Context(), b.locker)
		require.NoError(t, err, m.name)
		require.NoError(t, lock.Unlock(t.Context()), m.name)
	}
	b.leakCheck(t)
}

// requireFull requires that a call was refused for want of room, has left
// nothing, and that the pool serves once there is some room.
func (b *bundle) requireFull(t *testing.T, g *greedy, name string, lock *advisory.Lock, err error) {
	t.Helper()
	require.Nil(t, lock, name)
	require.ErrorIs(t, err, advisory.ErrLockTableFull, name)
	require.NotErrorIs(t, err, advisory.ErrNotAcquired, name)
	require.ErrorContains(t, err, "max_locks_per_transaction", name)
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr, name)
	require.Equal(t, "53200", pgErr.Code, name)
	b.eventually(t, "nothing of ours is kept", func() bool {
		// Without a look at pg_database, for which there is no room.
		return scan[int](t, b, "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid <> $1", int(g.session.PgConn().PID())) == 0
	})
	require.Zero(t, b.pool.Stat().AcquiredConns(), name)
	g.release(t, 50)
	require.NoError(t, b.pool.Ping(t.Context()), name)
	lock, err = b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err, name)
	require.NoError(t, lock.Unlock(t.Context()), name)
	exec(t, g.session, "SELECT pg_advisory_unlock_all()")
	require.NoError(t, g.session.Close(t.Context()))
	b.warm(t)
}

// Case 98.
func TestLocker_whenTheLockTableIsFull(t *testing.T) {
	t.Parallel()
	b := smallServer(t, maxConns(2))
	for _, m := range slices.Concat(locking, lockingToo[:2]) {
		g := b.greedy(t)
		lock, err := m.call(t.Context(), b.locker)
		b.requireFull(t, g, m.name, lock, err)
	}
}

// Case 99: there is room for some of the locks.
func TestTryLockAll_whenTheLockTableIsFullInTheMiddle(t *testing.T) {
	t.Parallel()
	b := smallServer(t, maxConns(2))
	keys := ids(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
	for name, call := range map[string]func() (*advisory.Lock, error){
		"TryLockAll": func() (*advisory.Lock, error) { return b.locker.TryLockAll(t.Context(), keys...) },
		"LockAll":    func() (*advisory.Lock, error) { return b.locker.LockAll(t.Context(), keys...) },
	} {
		g := b.greedy(t)
		g.release(t, 2)
		lock, err := call()
		b.requireFull(t, g, name, lock, err)
	}
}

// Case 98 where the Locker would need a new connection: there is no room for
// that one either.
func TestTryLock_whenTheLockTableIsFullForAConnection(t *testing.T) {
	t.Parallel()
	b := smallServer(t, maxConns(2))
	b.pool.Reset()
	g := b.greedy(t)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	b.requireFull(t, g, "TryLock", lock, err)
}
