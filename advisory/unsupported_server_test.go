package advisory_test

import (
	"cmp"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgscript"
)

// serve starts a peer that grants every lock and frees it again, unless a
// handler has another answer.
func serve(t *testing.T, handlers ...pgscript.Handler) *pgscript.Server {
	t.Helper()
	return pgscript.Serve(t, append(handlers,
		pgscript.On(tries, pgscript.Row(pgscript.Bool(true))),
		pgscript.On(unlocks, pgscript.Row(pgscript.Bool(true))))...)
}

// What to know the Locker's statements by.
const (
	meets   = "pg_is_in_recovery()"
	tries   = "WHEN pg_catalog.pg_try_advisory_lock"
	waits   = "DO $pgadvisory$"
	unlocks = "WHEN pg_catalog.pg_advisory_unlock("
	beats   = "pgadvisory heartbeat"
)

// onPeer returns a Locker on a pool of connections to a peer, closed at cleanup.
func onPeer(t *testing.T, peer *pgscript.Server, config *advisory.Config, configure ...func(*pgxpool.Config)) (*pgxpool.Pool, *advisory.Locker) {
	t.Helper()
	c, err := pgxpool.ParseConfig(peer.DSN())
	require.NoError(t, err)
	for _, f := range configure {
		f(c)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), c)
	require.NoError(t, err)
	t.Cleanup(func() {
		peer.Close() // or pgx says goodbye for 15 s where nobody answers
		pool.Close()
	})
	locker, err := advisory.New(pool, patient(config))
	require.NoError(t, err)
	return pool, locker
}

// patient is a config whose timeouts are long where the test is not about them:
// on a busy machine a server takes its time to answer.
func patient(config *advisory.Config) *advisory.Config {
	var c advisory.Config
	if config != nil {
		c = *config
	}
	if c.VanishTimeout == 0 { // else it is about them
		c.HeartbeatTimeout = cmp.Or(c.HeartbeatTimeout, 20*time.Second)
		if c.Heartbeat+c.HeartbeatTimeout >= 30*time.Second { // which is the default
			c.VanishTimeout = 24 * time.Hour
		}
	}
	c.UnlockTimeout = cmp.Or(c.UnlockTimeout, 30*time.Second)
	return &c
}

func TestLocker_refusesEnginesWhoseLocksLockNothing(t *testing.T) {
	t.Parallel()
	// The first is told apart even where its version() says PostgreSQL 13.
	peer := serve(t)
	peer.SetParameter("crdb_version", "CockroachDB CCL v24.1.0")
	pool, locker := onPeer(t, peer, nil)
	for _, m := range locking {
		_, err := m.call(t.Context(), locker)
		require.ErrorIs(t, err, advisory.ErrUnsupportedServer, m.name)
		require.ErrorContains(t, err, "CockroachDB CCL v24.1.0", m.name)
		require.ErrorContains(t, err, "PostgreSQL 13", m.name)
		require.Zero(t, pool.Stat().TotalConns(), m.name)
	}
	closesAll(t, peer)
}

func TestLocker_refusesServersByTheirVersion(t *testing.T) {
	t.Parallel()
	for version, supported := range map[string]bool{
		"PostgreSQL 13.0 on x86_64-pc-linux-gnu, compiled by gcc":   true,
		"PostgreSQL 19devel on aarch64-apple-darwin24":              true,
		"PostgreSQL 12.22 on x86_64-pc-linux-gnu":                   false,
		"PostgreSQL 9.6.24 on x86_64-pc-linux-gnu":                  false,
		"PostgreSQL 8.0.2 on i686-pc-linux-gnu, Redshift 1.0.61678": false,
		"CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu)":             false,
		"Materialize v0.100.0 (PostgreSQL 16)":                      false,
		"":                                                          false,
	} {
		peer := serve(t, pgscript.On(meets, pgscript.Row(pgscript.Int4(10001), pgscript.Bool(false), pgscript.Text(version))))
		pool, locker := onPeer(t, peer, nil)
		lock, err := locker.TryLock(t.Context(), advisory.ID(7))
		if supported {
			require.NoError(t, err, version)
			require.NoError(t, lock.Unlock(t.Context()), version)
			continue
		}
		require.ErrorIs(t, err, advisory.ErrUnsupportedServer, version)
		require.ErrorContains(t, err, version)
		require.Zero(t, pool.Stat().TotalConns(), version)
		closesAll(t, peer)
	}
}

// closesAll waits for the peer to see every connection closed.
func closesAll(t *testing.T, peer *pgscript.Server) {
	t.Helper()
	(&bundle{}).eventually(t, "every socket is closed", func() bool { return peer.Open() == 0 })
}
