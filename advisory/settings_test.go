package advisory_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// sessionSettings are those that a session is given while it holds a lock, and some that
// it is not.
func sessionSettings(b *bundle) []string {
	return append(settingsPutBack(b), "tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout")
}

// settingsPutBack are those without the ones that are set once for a connection.
func settingsPutBack(b *bundle) []string {
	names := []string{"application_name"}
	if b.db.Server.Version() >= 140000 {
		names = append(names, "idle_session_timeout", "client_connection_check_interval")
	}
	return append(names, "statement_timeout", "lock_timeout", "search_path", "idle_in_transaction_session_timeout")
}

func settingsOf(t *testing.T, conn *pgx.Conn, names []string) map[string]string {
	t.Helper()
	values := make(map[string]string)
	for _, name := range names {
		var value string
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value))
		values[name] = value
	}
	return values
}

// settingsIn returns what tells the settings of a connection of the pool.
func settingsIn(t *testing.T, pool *pgxpool.Pool, names []string) func() map[string]string {
	t.Helper()
	return func() map[string]string {
		c, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		defer c.Release()
		return settingsOf(t, c.Conn(), names)
	}
}

// waysToLock are all ways in which a Locker gets a lock. Each returns what unlocks
// and gives the connection back.
func (b *bundle) waysToLock(t *testing.T, l *advisory.Locker) map[string]func() (*advisory.Lock, func() error) {
	t.Helper()
	holder := b.session(t)
	unlocking := func(k *advisory.Lock, err error) (*advisory.Lock, func() error) {
		require.NoError(t, err)
		return k, func() error { return k.Unlock(t.Context()) }
	}
	waiting := func(lock func() (*advisory.Lock, error)) (*advisory.Lock, func() error) {
		exec(t, holder, "SELECT pg_advisory_lock(7)")
		var k *advisory.Lock
		got := make(chan error, 1)
		go func() {
			var err error
			k, err = lock()
			got <- err
		}()
		b.eventually(t, "it waits", func() bool { return b.waiting(t) == 1 })
		exec(t, holder, "SELECT pg_advisory_unlock(7)")
		return unlocking(k, <-got)
	}
	return map[string]func() (*advisory.Lock, func() error){
		"TryLock": func() (*advisory.Lock, func() error) {
			return unlocking(l.TryLock(t.Context(), advisory.ID(7)))
		},
		"TryRLock": func() (*advisory.Lock, func() error) {
			return unlocking(l.TryRLock(t.Context(), advisory.ID(7)))
		},
		"pair": func() (*advisory.Lock, func() error) {
			return unlocking(l.TryLock(t.Context(), advisory.Pair(1, -7)))
		},
		"TryLockAll": func() (*advisory.Lock, func() error) {
			return unlocking(l.TryLockAll(t.Context(), append(ids(7, 8), advisory.Pair(-1, 7))...))
		},
		"TryAcquire": func() (*advisory.Lock, func() error) {
			return unlocking(l.Semaphore("slots", 2).TryAcquire(t.Context()))
		},
		"Lock, having waited": func() (*advisory.Lock, func() error) {
			return waiting(func() (*advisory.Lock, error) { return l.Lock(context.Background(), advisory.ID(7)) })
		},
		"RLock, having waited": func() (*advisory.Lock, func() error) {
			return waiting(func() (*advisory.Lock, error) { return l.RLock(context.Background(), advisory.ID(7)) })
		},
		"LockAll, having waited": func() (*advisory.Lock, func() error) {
			return waiting(func() (*advisory.Lock, error) { return l.LockAll(context.Background(), ids(6, 7, 8)...) })
		},
		"Session": func() (*advisory.Lock, func() error) {
			s, err := l.Session(t.Context())
			require.NoError(t, err)
			k, err := s.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err)
			return k, func() error { return s.Close(t.Context()) }
		},
	}
}

// Case 103: whatever way it was locked, the connection returns as it was.
func TestUnlock_putsTheSettingsBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	names := sessionSettings(b)
	pool, locker := b.another(t, nil, maxConns(2), setting("application_name", "billing | 'x',"),
		setting("tcp_keepalives_idle", "77"), setting("tcp_user_timeout", "4444"))
	observe := settingsIn(t, pool, names)
	c, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	if b.db.Server.Version() >= 140000 {
		exec(t, c.Conn(), "SET idle_session_timeout = '17min'") // by other code, on the session
	}
	c.Release()
	before := observe()
	require.Equal(t, "77", before["tcp_keepalives_idle"])
	require.Equal(t, "4444", before["tcp_user_timeout"])
	// What is stricter than it was is set once, and stays; what had to be relaxed does not.
	before["tcp_keepalives_idle"], before["tcp_keepalives_interval"], before["tcp_keepalives_count"] = "15", "5", "3"

	for name, way := range b.waysToLock(t, locker) {
		k, unlock := way()
		require.NoError(t, advisory.OnSession(k, func(conn *pgx.Conn) {
			held := settingsOf(t, conn, names)
			require.Equal(t, "15", held["tcp_keepalives_idle"], name)
			require.Equal(t, "5", held["tcp_keepalives_interval"], name)
			require.Equal(t, "3", held["tcp_keepalives_count"], name)
			require.Equal(t, "30000", held["tcp_user_timeout"], name)
			if b.db.Server.Version() >= 140000 {
				require.Equal(t, "0", held["idle_session_timeout"], name)
			}
		}))
		require.NoError(t, unlock(), name)
		require.Equal(t, before, observe(), name)
	}
	require.EqualValues(t, 1, pool.Stat().NewConnsCount())
}

func TestLock_namesItsSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, locker := b.another(t, nil, setting("application_name", "billing"))
	name := func(lock *advisory.Lock) string {
		return scan[string](t, b, "SELECT application_name FROM pg_stat_activity WHERE pid = $1", int(lock.BackendPID()))
	}
	for _, c := range []struct {
		keys []advisory.Key
		want string
	}{
		{[]advisory.Key{advisory.Name("nightly-export")}, "lock nightly-export of billing"},
		{ids(7), "lock 7 of billing"},
		{[]advisory.Key{advisory.Pair(1, 2)}, "lock (1, 2) of billing"},
		{ids(1, 2, 3), "lock 1 and 2 more of billing"},
		{[]advisory.Key{advisory.Name(strings.Repeat("x", 100))}, "lock " + strings.Repeat("x", 58)},
	} {
		lock, err := locker.TryLockAll(t.Context(), c.keys...)
		require.NoError(t, err)
		require.Equal(t, c.want, name(lock))
		require.NoError(t, lock.Unlock(t.Context()))
	}
	single, err := locker.TryLock(t.Context(), advisory.Name("nightly-export"))
	require.NoError(t, err)
	require.Equal(t, "lock nightly-export of billing", name(single))
}

// A session that waits has its name already, and its connection returns as it was
// when the wait is given up.
func TestLock_aWaitThatIsGivenUpPutsTheSettingsBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	names := settingsPutBack(b)
	pool, locker := b.another(t, nil, maxConns(2), setting("application_name", "billing"))
	observe := settingsIn(t, pool, names)
	before := observe()
	exec(t, b.session(t), "SELECT pg_advisory_lock(7)")
	for name, wait := range map[string]func(context.Context) error{
		"lock 7 of billing":            func(ctx context.Context) error { _, err := locker.Lock(ctx, advisory.ID(7)); return err },
		"lock 6 and 1 more of billing": func(ctx context.Context) error { _, err := locker.LockAll(ctx, ids(6, 7)...); return err },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- wait(ctx) }()
		b.eventually(t, "it waits under its name", func() bool {
			return scan[bool](t, b, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'advisory')", name)
		})
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
		b.eventually(t, "the connection is back", func() bool { return pool.Stat().AcquiredConns() == 0 })
		require.Equal(t, before, observe(), name)
	}
	require.EqualValues(t, 1, pool.Stat().NewConnsCount())
}

// asRole makes a pool log in as a role of its own, which has the setting.
func (b *bundle) asRole(t *testing.T, name, value string) func(*pgxpool.Config) {
	t.Helper()
	role := name + "_" + strings.ToLower(rand.Text()[:20])
	_, err := b.raw.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'")
	require.NoError(t, err)
	t.Cleanup(func() {
		if _, err := b.raw.Exec(context.Background(), "DROP ROLE "+role); err != nil {
			t.Error(err)
		}
	})
	_, err = b.raw.Exec(t.Context(), "ALTER ROLE "+role+" SET "+name+" = '"+value+"'")
	require.NoError(t, err)
	return func(c *pgxpool.Config) { c.ConnConfig.User, c.ConnConfig.Password = role, "secret" }
}

// Case 39: the limits of a role are meant for its queries, and not for a holder
// that idles or a wait.
func TestLock_survivesTheTimeoutsOfTheRole(t *testing.T) {
	t.Parallel()
	version := setup(t).db.Server.Version()
	for _, name := range []string{
		"idle_session_timeout", "idle_in_transaction_session_timeout", "statement_timeout", "lock_timeout", "transaction_timeout",
	} {
		if name == "idle_session_timeout" && version < 140000 || name == "transaction_timeout" && version < 170000 {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			config := &advisory.Config{Heartbeat: time.Hour, VanishTimeout: 2 * time.Hour} // no sign of life in between
			role := b.asRole(t, name, "1s")
			_, holds := b.another(t, config, role)
			pool, waits := b.another(t, config, role)
			var limit string
			require.NoError(t, pool.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&limit))
			require.Equal(t, "1s", limit)

			lock, err := holds.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err)
			start := time.Now()
			got := b.lockInBackground(t, waits, advisory.ID(7))
			exec(t, b.session(t), "SELECT pg_sleep(5)")
			require.NoError(t, lock.Err())
			require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
			require.NoError(t, lock.Unlock(t.Context()))
			next := <-got
			require.Greater(t, time.Since(start), 5*time.Second)
			require.NoError(t, next.Unlock(t.Context()))
		})
	}
}

// What is set once for a connection holds for each of its locks, even if other code on the
// pool, or the function of a Tx, sets one of the settings by itself.
func TestLock_hasItsSettingsAfterOtherCodeHasChangedThem(t *testing.T) {
	t.Parallel()
	b := setup(t)
	names := []string{"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout"}
	pool, locker := b.another(t, nil, maxConns(2))
	lock := func() (k *advisory.Lock, held map[string]string) {
		k, err := locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		require.NoError(t, advisory.OnSession(k, func(conn *pgx.Conn) { held = settingsOf(t, conn, names) }))
		return k, held
	}
	k, want := lock()
	require.NoError(t, k.Unlock(t.Context()))
	for _, name := range names {
		c, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		exec(t, c.Conn(), "SET "+name+" = 0")
		c.Release()
		k, held := lock()
		require.Equal(t, want, held, name)
		require.NoError(t, k.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "SET "+name+" = 0")
			return err
		}))
		require.NoError(t, k.Unlock(t.Context()))
		k, held = lock()
		require.Equal(t, want, held, name)
		require.NoError(t, k.Unlock(t.Context()))
	}
	require.EqualValues(t, 1, pool.Stat().NewConnsCount())
}
