package advisory_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// reconfigured is a PgBouncer that keeps sessions until the test has it lend them,
// as after somebody has changed its configuration.
type reconfigured struct {
	*bundle
	occupier *occupier
	console  *pgx.Conn
}

func reconfigurable(t *testing.T, config *advisory.Config) *reconfigured {
	t.Helper()
	b := onPgBouncer(t, "session", config, "admin_users = postgres", "default_pool_size = 20")
	console := b.via.Named(t, "pgbouncer").Conn(t, simpleProtocol, func(c *pgx.ConnConfig) { c.User = "postgres" })
	return &reconfigured{b, &occupier{t: t}, console}
}

// lend has the pooler lend backends from now on, and another client take the one
// that lock was granted on as soon as the session has used it once more.
func (r *reconfigured) lend(t *testing.T, lock *advisory.Lock, use func()) {
	t.Helper()
	exec(t, r.console, "SET pool_mode = 'transaction'")
	r.occupier.client = r.via.Conn(t, simpleProtocol)
	use()
	for range 50 {
		r.occupier.occupy()
		if r.occupier.pid == int(lock.BackendPID()) {
			return
		}
		// A heartbeat was under way. The next one may have the backend that was used last.
		exec(t, r.occupier.client, "ROLLBACK")
	}
}

// unlend ends what the pooler has left of the lock.
func (r *reconfigured) unlend(t *testing.T, lock *advisory.Lock) {
	t.Helper()
	require.True(t, r.isHeldBy(t, 7, lock.BackendPID()), "it is the pooler's now")
	require.Zero(t, r.pool.Stat().TotalConns(), "the connection is destroyed")
	r.terminate(t, lock.BackendPID())
	r.noLockLeft(t)
}

// Case 51: a lock that can't be kept any more. No unlock is reported that did not
// take place.
func TestUnlock_isNotReportedByAnotherBackend(t *testing.T) {
	t.Parallel()
	config := allowing()
	config.Heartbeat = time.Hour
	r := reconfigurable(t, config)
	lock, err := r.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	r.lend(t, lock, func() { require.NoError(t, advisory.ExecOnSession(lock, "SELECT 1")) })
	require.EqualValues(t, lock.BackendPID(), r.occupier.pid)

	err = lock.Unlock(t.Context())
	require.ErrorIs(t, err, advisory.ErrNotOwner)
	require.ErrorIs(t, err, advisory.ErrLost)
	require.Equal(t, err, lock.Unlock(t.Context()))
	r.unlend(t, lock)
}

// The heartbeat has to be answered by the backend that holds.
func TestLoss_thePoolerLendsTheBackend(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*testing.T, *advisory.Locker) *advisory.Lock{
		"Locker": func(t *testing.T, l *advisory.Locker) *advisory.Lock {
			t.Helper()
			lock, err := l.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err)
			return lock
		},
		"Session": func(t *testing.T, l *advisory.Locker) *advisory.Lock {
			t.Helper()
			s, err := l.Session(t.Context())
			require.NoError(t, err)
			lock, err := s.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err)
			return lock
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := allowing()
			config.Heartbeat = 20 * time.Millisecond
			r := reconfigurable(t, config)
			lock := call(t, r.locker)
			r.lend(t, lock, func() { r.untilBeaten(t, lock, 3) })

			noticed(t, lock)
			var lost *advisory.LostError
			require.ErrorAs(t, lock.Err(), &lost)
			require.Equal(t, advisory.LostPooler, lost.Reason)
			require.ErrorIs(t, lost, advisory.ErrPooler)
			require.ErrorIs(t, lost, advisory.ErrLost)
			require.ErrorContains(t, lost, "the pooler must be in session mode")
			require.Equal(t, lock.Err(), lock.Unlock(t.Context()))
			r.unlend(t, lock)

			// What was found out before does not count any more.
			_, err := r.locker.TryLock(t.Context(), advisory.ID(8))
			require.ErrorIs(t, err, advisory.ErrPooler)
		})
	}
}

// untilBeaten waits for heartbeats of the lock's session.
func (b *bundle) untilBeaten(t *testing.T, lock *advisory.Lock, times int) {
	t.Helper()
	const query = "SELECT query_start::text FROM pg_stat_activity WHERE pid = $1 AND query LIKE '%pgadvisory heartbeat%'"
	seen := make(map[string]bool)
	b.eventually(t, "there are heartbeats", func() bool {
		var start string
		if err := b.raw.QueryRow(t.Context(), query, int(lock.BackendPID())).Scan(&start); err == nil {
			seen[start] = true
		}
		return len(seen) >= times
	})
}

// It costs no round trip more, and none of another kind without a pooler.
func TestLock_heartbeatsBehindAPoolerAskForTheBackend(t *testing.T) {
	t.Parallel()
	config := allowing()
	config.Heartbeat = 20 * time.Millisecond
	b := onPgBouncer(t, "session", config)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	b.untilBeaten(t, lock, 5)
	require.Contains(t, b.queryOf(t, lock), "pg_backend_pid()")
	require.NoError(t, lock.Unlock(t.Context()))

	direct := &bundle{db: b.db, via: b.db, raw: b.raw, isOnPooler: true}
	direct.pool, direct.locker = direct.another(t, config)
	lock, err = direct.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	direct.untilBeaten(t, lock, 5)
	require.NotContains(t, direct.queryOf(t, lock), "pg_backend_pid()")
	require.NoError(t, lock.Unlock(t.Context()))
}

func (b *bundle) queryOf(t *testing.T, lock *advisory.Lock) string {
	t.Helper()
	return scan[string](t, b, "SELECT query FROM pg_stat_activity WHERE pid = $1", int(lock.BackendPID()))
}
