package pgtest_test

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// relays start a pooler or a proxy in front of a database.
var relays = map[string]func(ctx context.Context, dsn string) (string, error){
	"pgbouncer": pgtest.StartPgBouncer,
	"haproxy":   pgtest.StartHAProxy,
	"pgpool":    pgtest.StartPgpool,
}

func TestRelay_leavesNothingWhenTheProcessIsKilled(t *testing.T) {
	t.Parallel()
	for name, config := range map[string]string{"pgbouncer": "pgbouncer.ini", "haproxy": "haproxy.cfg", "pgpool": "pgpool.conf"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, tmp := pgtest.New(t), sharedTempDir(t)
			startRelay(t, db, name) // or skip
			child, stdout := startChild(t, envChild+"="+name, "DATABASE_URL="+db.DSN, "TMPDIR="+tmp)
			r := readReport(t, stdout)
			requireThere(t, r)
			matches, err := filepath.Glob(filepath.Join(tmp, "*", config))
			require.NoError(t, err)
			require.Len(t, matches, 1)
			info, err := os.Stat(matches[0])
			require.NoError(t, err)
			require.Zero(t, info.Mode()&0o077, "it may have the password in it")

			require.NoError(t, child.Process.Kill())
			require.Error(t, child.Wait())
			r.Dir = filepath.Dir(matches[0])
			requireGone(t, r)
		})
	}
}

//nolint:tparallel // the subtest must have ended, cleanup and all, before the rest
func TestRelay_endsWithItsTest(t *testing.T) {
	t.Parallel()
	for name := range relays {
		db := pgtest.New(t)
		var r report
		t.Run(name, func(t *testing.T) {
			r.DSN = startRelay(t, db, name)
			requireThere(t, r)
		})
		if r.DSN != "" {
			requireGone(t, r)
		}
	}
}

func startRelay(t *testing.T, db *pgtest.Database, name string) string {
	t.Helper()
	switch name {
	case "haproxy":
		return db.HAProxy(t, pgtest.HAProxy{})
	case "pgpool":
		return pgtest.Pgpool(t, "streaming_replication", []*pgtest.Database{db})
	default:
		return db.PgBouncer(t, "session")
	}
}

func TestHAProxy_isSeenByItsPort(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	proxied := *db
	proxied.DSN = db.HAProxy(t, pgtest.HAProxy{})
	conn := proxied.Conn(t)
	require.EqualValues(t, conn.PgConn().PID(), backendOf(t, conn))
	require.NotEqual(t, localPort(conn), serverSeesPort(t, conn))
	direct := db.Conn(t)
	if db.Server.Provider() == "installed" { // without a network in between that translates addresses
		require.Equal(t, localPort(direct), serverSeesPort(t, direct))
	}
}

func localPort(conn *pgx.Conn) int { return conn.PgConn().Conn().LocalAddr().(*net.TCPAddr).Port }

func serverSeesPort(t *testing.T, conn *pgx.Conn) (port int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT inet_client_port()").Scan(&port))
	return port
}

// Of one server it passes the process ID on, and of several the one of another
// server than the primary.
func TestPgpool_tellsAProcessIDOfOneOfItsServers(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	for name, servers := range map[string][]*pgtest.Database{"one": {pair.Primary}, "two": {pair.Primary, pair.Standby}} {
		pooled := *pair.Primary
		pooled.DSN = pgtest.Pgpool(t, "streaming_replication", servers)
		conn, other := pooled.Conn(t), pooled.Conn(t)
		primary := primaryBackendOf(t, conn)
		require.Equal(t, len(servers) == 1, int(conn.PgConn().PID()) == primary, name)
		require.NotEqual(t, primary, primaryBackendOf(t, other), name)
		require.Equal(t, primary, primaryBackendOf(t, conn), name)
	}
}

func primaryBackendOf(t *testing.T, conn *pgx.Conn) (pid int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), "/*NO LOAD BALANCE*/ SELECT pg_backend_pid()").Scan(&pid))
	return pid
}
