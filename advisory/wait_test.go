package advisory_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// lockInBackground calls Lock in a goroutine and returns when it waits on the server, or
// is parked because four others do.
func (b *bundle) lockInBackground(t *testing.T, locker *advisory.Locker, key advisory.Key) <-chan *advisory.Lock {
	t.Helper()
	named := func() int {
		return scan[int](t, b, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'lock %'")
	}
	before, namedBefore := b.waiting(t), named()
	got := make(chan *advisory.Lock, 1)
	go func() {
		lock, err := locker.Lock(context.Background(), key)
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	b.eventually(t, "it waits on the server", func() bool {
		// Others may be between two waits when they are counted.
		return b.waiting(t) == before+1 || before > 0 && named() > namedBefore
	})
	return got
}

// waiterPID is the backend of the one session that waits.
func (b *bundle) waiterPID(t *testing.T) (pid int) {
	t.Helper()
	b.eventually(t, "one waits on the server", func() bool {
		pid = scan[int](t, b, "SELECT coalesce(max(pid), 0) "+advisoryLocks+" AND NOT granted")
		return pid != 0
	})
	return pid
}

func TestLock_isGrantedWhenTheHolderUnlocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, other := b.another(t, nil)
	for _, key := range []advisory.Key{advisory.ID(-7), advisory.Pair(-7, 7)} {
		first, err := b.locker.TryLock(t.Context(), key)
		require.NoError(t, err)
		got := b.lockInBackground(t, other, key)
		require.NoError(t, first.Unlock(t.Context()))
		second := <-got
		require.Equal(t, int(second.BackendPID()), scan[int](t, b, "SELECT pid "+advisoryLocks+" AND granted"))
		require.NoError(t, second.Unlock(t.Context()))
		require.Zero(t, b.granted(t))
	}
}

func TestLock_waitsAnyTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.session(t)
	exec(t, holder, "SELECT pg_advisory_lock(7)")
	start := time.Now()
	got := b.lockInBackground(t, b.locker, advisory.ID(7))
	pid := b.waiterPID(t)
	exec(t, holder, "SELECT pg_sleep($1)", (4 * advisory.Slice).Seconds())
	exec(t, holder, "SELECT pg_advisory_unlock(7)")
	lock := <-got
	require.Greater(t, time.Since(start), 4*advisory.Slice)
	require.EqualValues(t, pid, lock.BackendPID(), "all slices of the wait on one connection")
	require.NoError(t, lock.Unlock(t.Context()))
}

// Cases 82 and 83: the holder builds an index concurrently, on another session
// than the one that holds the lock, while others wait for the lock.
func TestLock_letsCreateIndexConcurrentlyFinish(t *testing.T) {
	t.Parallel()
	b := setupWith(t, pgtest.ReadableLog)
	table := b.session(t)
	exec(t, table, "CREATE TABLE t (x int)")
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	waiters := make([]<-chan *advisory.Lock, 8)
	for i := range waiters {
		_, locker := b.another(t, nil, maxConns(2))
		waiters[i] = b.lockInBackground(t, locker, advisory.ID(7))
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err = b.pool.Exec(ctx, "CREATE INDEX CONCURRENTLY i ON t (x)")
	require.NoError(t, err, "in another session of the holder's pool")
	// In the holder's own session it would wait for itself if it were in a
	// transaction, and the deadlock detector would choose a victim if a waiter
	// blocked.
	require.NoError(t, advisory.ExecOnSession(lock, "CREATE INDEX CONCURRENTLY j ON t (x)"))
	require.Equal(t, 2, scan[int](t, b, "SELECT count(*) FROM pg_index WHERE indrelid = 't'::regclass AND indisvalid"))
	b.eventually(t, "they still wait", func() bool { return b.waiting(t) > 0 })

	require.NoError(t, lock.Unlock(t.Context()))
	next := make(chan *advisory.Lock)
	for _, got := range waiters {
		go func() { next <- <-got }()
	}
	for range waiters {
		require.NoError(t, (<-next).Unlock(t.Context()))
	}
	require.NotContains(t, b.db.Log(t), "ERROR")
}

// Cases 86, 87 and 107: a wait keeps no snapshot for longer than a slice, and
// says nothing in the server's log.
func TestLock_holdsBackNoVacuum(t *testing.T) {
	t.Parallel()
	b := setupWith(t, pgtest.ReadableLog)
	holder := b.session(t)
	exec(t, holder, "CREATE TABLE t (x int)")
	exec(t, holder, "INSERT INTO t SELECT generate_series(1, 50)")
	exec(t, holder, "SELECT pg_advisory_lock(7)")
	got := b.lockInBackground(t, b.locker, advisory.ID(7))
	waiter := b.waiterPID(t)

	// In a wait of 5 s each snapshot is gone within a second: it is not older
	// than the transaction that took it.
	elapsed, end := timed(t), time.Now().Add(5*time.Second)
	seen := map[time.Time]time.Duration{} // since when, by the start of its transaction
	for deadline := time.Now().Add(patience); time.Now().Before(end) || len(seen) <= 5; {
		require.True(t, time.Now().Before(deadline), "%d snapshots in %s", len(seen), patience)
		var start *time.Time
		require.NoError(t, b.raw.QueryRow(t.Context(), `SELECT xact_start FROM pg_stat_activity WHERE pid = $1 AND backend_xmin IS NOT NULL
			UNION ALL SELECT NULL LIMIT 1`, waiter).Scan(&start))
		if start == nil {
			continue
		}
		if _, found := seen[*start]; !found {
			seen[*start] = elapsed()
		}
		require.Less(t, elapsed()-seen[*start], time.Second)
	}
	exec(t, holder, "DELETE FROM t")
	b.eventually(t, "VACUUM removes what was deleted meanwhile", func() bool {
		exec(t, holder, "VACUUM t")
		return scan[int](t, b, "SELECT pg_relation_size('t')") == 0
	})
	b.eventually(t, "it still waits", func() bool { return b.waiting(t) == 1 })
	exec(t, holder, "SELECT pg_advisory_unlock(7)")
	require.NoError(t, (<-got).Unlock(t.Context()))

	for line := range strings.Lines(b.db.Log(t)) {
		for _, word := range []string{"ERROR", "WARNING", "FATAL"} {
			require.NotContains(t, line, word)
		}
	}
}

// Cases 100 and 39, law 5: what a role is set to is meant for its queries.
func TestLock_settingsOfTheRoleEndNoWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	settings := []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"}
	if b.db.Server.Version() >= 170000 {
		settings = append(settings, "transaction_timeout")
	}
	const limit = "50ms"
	for _, name := range settings {
		pool, locker := b.another(t, nil, setting(name, limit))
		holder := b.session(t)
		exec(t, holder, "SELECT pg_advisory_lock(7)")
		got := b.lockInBackground(t, locker, advisory.ID(7))
		exec(t, holder, "SELECT pg_sleep($1)", (3 * advisory.Slice / 2).Seconds())
		exec(t, holder, "SELECT pg_advisory_unlock(7)")
		lock := <-got
		require.NotNil(t, lock, "%s = %s", name, limit)
		require.NoError(t, lock.Unlock(t.Context()))

		// Case 103: and the connection is as it was.
		var now string
		require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&now))
		require.Equal(t, limit, now)
	}
}

// A deadlock_timeout below the default shortens the wait on the server.
func TestLock_staysBelowDeadlockTimeout(t *testing.T) {
	t.Parallel()
	b := setupWith(t, pgtest.ReadableLog)
	_, locker := b.another(t, nil, setting("deadlock_timeout", "20ms"))
	holder := b.session(t)
	exec(t, holder, "CREATE TABLE t (x int)")
	exec(t, holder, "SELECT pg_advisory_lock(7)")
	got := b.lockInBackground(t, locker, advisory.ID(7))
	exec(t, holder, "CREATE INDEX CONCURRENTLY i ON t (x)")
	exec(t, holder, "SELECT pg_advisory_unlock(7)")
	require.NoError(t, (<-got).Unlock(t.Context()))
	require.NotContains(t, b.db.Log(t), "deadlock")
}

// Case 102: ten seconds was the limit that could not be raised.
func TestLock_hasNoLimitOfItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, other := b.another(t, nil)
	_, hasty := b.another(t, nil)
	holder := b.session(t)
	exec(t, holder, "SELECT pg_advisory_lock(7)")
	unlimited := b.lockInBackground(t, b.locker, advisory.ID(7))
	limited := make(chan error, 1)
	long, cancelLong := context.WithTimeout(t.Context(), time.Minute)
	defer cancelLong()
	go func() {
		limited <- other.Do(long, advisory.ID(7), func(context.Context, *advisory.Lock) error { return nil })
	}()

	short, cancelShort := context.WithTimeout(t.Context(), time.Second)
	defer cancelShort()
	_, err := hasty.Lock(short, advisory.ID(7))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	exec(t, holder, "SELECT pg_sleep(10.5)")
	require.Empty(t, limited)
	exec(t, holder, "SELECT pg_advisory_unlock(7)")
	require.NoError(t, (<-unlimited).Unlock(t.Context()))
	require.NoError(t, <-limited)
}
