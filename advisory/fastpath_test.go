package advisory_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestTryLock_sendsOnceAndUnlockOnce(t *testing.T) {
	t.Parallel()
	f := new(pgtest.Wire)
	b := setup(t, f.On)
	for i := range 20 {
		before := f.Sent()
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(int64(i)))
		require.NoError(t, err)
		locked := f.Sent()
		require.NoError(t, lock.Unlock(t.Context()))
		if i > 0 {
			require.EqualValues(t, 1, locked-before)
			require.EqualValues(t, 1, f.Sent()-locked)
		}
	}
}

// Whoever used the connection in between may have changed what was known of it.
func TestLocker_onAConnectionThatOtherCodeHasChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	names := settingsPutBack(b)
	idle := "SELECT 1"
	if b.db.Server.Version() >= 140000 {
		idle = "SET idle_session_timeout = '17min'"
	}
	pool, locker := b.another(t, nil, maxConns(2), func(c *pgxpool.Config) {
		c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec // pgx has no use for DEALLOCATE ALL either
	})
	use := func(sql string) map[string]string {
		c, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		defer c.Release()
		exec(t, c.Conn(), sql)
		return settingsOf(t, c.Conn(), names)
	}
	for name, way := range b.waysToLock(t, locker) {
		for _, sql := range []string{
			"SELECT 1", idle, "SET application_name = 'other ''name'", "DEALLOCATE ALL", "DISCARD ALL", "RESET ALL",
		} {
			use("RESET ALL")
			lock, err := locker.TryLock(t.Context(), advisory.ID(9)) // meets it as it is now
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(t.Context()))

			before := use(sql)
			lock, unlock := way()
			require.NoError(t, advisory.OnSession(lock, func(conn *pgx.Conn) {
				require.Equal(t, "15", settingsOf(t, conn, sessionSettings(b))["tcp_keepalives_idle"], "%s, %s", name, sql)
				exec(t, conn, "DEALLOCATE ALL")
			}))
			require.NoError(t, unlock(), "%s, %s", name, sql)
			require.Equal(t, before, use("SELECT 1"), "%s, %s", name, sql)
		}
	}
	require.EqualValues(t, 1, pool.Stat().NewConnsCount())
}

// A call that is left while the server has not answered returns at once, and the
// connection is saved.
func TestTryLock_leftInTheMiddleOfTheStatement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := b.proxy(t)
	pool, locker := b.another(t, nil, through(proxy), maxConns(2))
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	pid := lock.BackendPID()
	require.NoError(t, lock.Unlock(t.Context()))
	for range 20 {
		proxy.Delay(faultproxy.ToClient, time.Hour) // until it is ended
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		_, err = locker.TryLock(ctx, advisory.ID(7))
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		proxy.Delay(faultproxy.ToClient, 0)
		b.eventually(t, "the connection is back", func() bool { return pool.Stat().AcquiredConns() == 0 })
		require.Zero(t, b.granted(t))
		lock, err = locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		require.Equal(t, pid, lock.BackendPID())
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

func TestOpen_setsItsConnectionsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	locker, err := advisory.Open(t.Context(), b.db.DSN, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, locker.Close(context.Background())) }()
	for range 3 {
		lock, err := locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		require.NoError(t, lock.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
			var idle string
			require.NoError(t, tx.QueryRow(t.Context(), "SELECT current_setting('tcp_keepalives_idle')").Scan(&idle))
			require.Equal(t, "15", idle)
			_, err := tx.Exec(t.Context(), "SET tcp_keepalives_idle = 99") // whatever its user does
			return err
		}))
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

func TestTryLock_allocatesLittle(t *testing.T) {
	b := setup(t)
	raw := testing.AllocsPerRun(200, func() {
		c, err := b.raw.Acquire(t.Context())
		require.NoError(t, err)
		defer c.Release()
		for _, sql := range []string{"SELECT pg_try_advisory_lock($1)", "SELECT pg_advisory_unlock($1)"} {
			var ok bool
			require.NoError(t, c.QueryRow(t.Context(), sql, 8).Scan(&ok))
		}
	})
	own := testing.AllocsPerRun(200, func() {
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	})
	require.LessOrEqual(t, own, raw+25)
}
