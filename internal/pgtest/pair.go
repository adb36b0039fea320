package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
)

// pairLimit bounds each wait for replication.
const pairLimit = 30 * time.Second

// A Pair is a primary and its streaming, asynchronous standby. Both belong to
// one test, and are used through their maintenance database, in which the
// migrations have been run. Close of a [Database.Server] is an immediate
// shutdown: of the primary's, a crash.
type Pair struct {
	Primary *Database
	Standby *Database

	replication *faultproxy.Proxy
}

// StartPair starts a pair for t from installed binaries, whatever the provider
// of the other tests' server is. It ends with the test, or with this process,
// whichever is first. t is skipped where the binaries are not installed.
func StartPair(t testing.TB) *Pair {
	t.Helper()
	bin, err := findOwnBinDir(t.Context(), "pg_basebackup")
	if err != nil {
		t.Skip(err)
	}
	as, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	password := password()
	p := &Pair{Primary: startMember(t, bin, as, source{}, password)}
	if err := migrateDSN(t.Context(), p.Primary.DSN); err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(p.Primary.DSN)
	if err != nil {
		t.Fatal(err)
	}
	p.replication = faultproxy.Start(t, net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))))
	p.Standby = startMember(t, bin, as, source{
		conninfo: fmt.Sprintf("host=127.0.0.1 port=%d user=postgres sslmode=disable application_name=pgtest_standby",
			p.replication.Addr().Port),
		settings: []string{"hot_standby=on", "wal_retrieve_retry_interval=100ms"},
	}, password)
	return p
}

// findOwnBinDir returns the folder whose server would be started, if it has the
// programs too.
func findOwnBinDir(ctx context.Context, programs ...string) (binDir, error) {
	_, err := newSession(nil)
	var bin binDir
	if err == nil {
		bin, err = findBinDir(ctx)
	}
	if err == nil {
		// The folder may have links to some of the programs only.
		var server string
		if server, err = filepath.EvalSymlinks(filepath.Join(bin.path, "postgres")); err == nil {
			bin.path = filepath.Dir(server)
		}
	}
	for _, program := range programs {
		if err == nil {
			_, err = exec.LookPath(filepath.Join(bin.path, program))
		}
	}
	if err != nil {
		return binDir{}, fmt.Errorf("pgtest: no server of one test: %w; install the PostgreSQL server "+
			"(Debian and Ubuntu: apt-get install postgresql; Fedora: dnf install postgresql-server; "+
			"macOS: brew install postgresql@18)", err)
	}
	return bin, nil
}

func startMember(t testing.TB, bin binDir, as *account, from source, password string) *Database {
	t.Helper()
	b, err := serve(t.Context(), bin, as, from, password)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer("installed", b)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := s.askVersion(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &Database{Name: "postgres", DSN: s.DSN(), Server: s}
}

func migrateDSN(ctx context.Context, dsn string) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	return migrate(ctx, pool)
}

// CatchUp waits until the standby has replayed what is written on the primary
// now.
func (p *Pair) CatchUp(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pairLimit)
	defer cancel()
	var written string
	if err := withConn(ctx, p.Primary.DSN, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sqlWritten).Scan(&written)
	}); err != nil {
		t.Fatalf("pgtest: how far the primary is: %v", err)
	}
	if err := waitTrue(ctx, p.Standby.DSN, sqlReplayed, written); err != nil {
		t.Fatalf("pgtest: wait for the standby: %v", err)
	}
}

// CutReplication ends replication. When it returns, nothing that is committed
// on the primary from now on reaches the standby.
func (p *Pair) CutReplication(t testing.TB) {
	t.Helper()
	p.replication.RefuseNew(true)
	p.replication.Cut()
	ctx, cancel := context.WithTimeout(t.Context(), pairLimit)
	defer cancel()
	if err := waitTrue(ctx, p.Primary.DSN, sqlNoStandby); err != nil {
		t.Fatalf("pgtest: wait for the end of replication: %v", err)
	}
}

// RestoreReplication undoes CutReplication, unless the standby was promoted
// meanwhile. It doesn't wait: see [Pair.CatchUp].
func (p *Pair) RestoreReplication() { p.replication.RefuseNew(false) }

// Promote makes the standby a primary, with what it has received, and waits
// until it is. The old primary is not told.
func (p *Pair) Promote(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pairLimit)
	defer cancel()
	if err := waitTrue(ctx, p.Standby.DSN, sqlPromote); err != nil {
		t.Fatalf("pgtest: promote the standby: %v", err)
	}
}

// waitTrue repeats a query until its answer is true.
func waitTrue(ctx context.Context, dsn, sql string, args ...any) error {
	return withConn(ctx, dsn, func(conn *pgx.Conn) error {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			var reached bool
			if err := conn.QueryRow(ctx, sql, args...).Scan(&reached); err != nil {
				return err
			}
			if reached {
				return nil
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return errors.Join(ctx.Err(), errors.New("still false: "+sql))
			}
		}
	})
}
