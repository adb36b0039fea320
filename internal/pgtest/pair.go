package pgtest

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// pairLimit bounds each wait for replication.
const pairLimit = 2 * time.Minute

// A Pair is a primary and its streaming, asynchronous standby. Both belong to
// one test, and are used through their maintenance database, in which the
// migrations have been run. Close of a [Database.Server] is an immediate
// shutdown: of the primary's, a crash.
type Pair struct {
	Primary *Database
	Standby *Database

	standby *Standby
}

// StartPair starts a pair for t from installed binaries, whatever the provider
// of the other tests' server is. It ends with the test, or with this process,
// whichever is first. t is skipped where the binaries are not installed.
func StartPair(t testing.TB) *Pair {
	t.Helper()
	if err := CheckStandby(t.Context()); err != nil {
		t.Skip(err)
	}
	primary := StartWith(t)
	standby, err := LaunchStandby(t.Context(), primary)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Close(); err != nil {
			t.Error(err)
		}
	})
	return &Pair{Primary: primary, Standby: standby.Database, standby: standby}
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
	p.must(t, p.standby.CatchUp)
}

// CutReplication ends replication. When it returns, nothing that is committed
// on the primary from now on reaches the standby.
func (p *Pair) CutReplication(t testing.TB) {
	t.Helper()
	p.must(t, p.standby.Cut)
}

// RestoreReplication undoes CutReplication, unless the standby was promoted
// meanwhile. It doesn't wait: see [Pair.CatchUp].
func (p *Pair) RestoreReplication() { p.standby.Restore() }

// Promote makes the standby a primary, with what it has received, and waits
// until it is. The old primary is not told.
func (p *Pair) Promote(t testing.TB) {
	t.Helper()
	p.must(t, p.standby.Promote)
}

func (p *Pair) must(t testing.TB, do func(context.Context) error) {
	t.Helper()
	if err := do(t.Context()); err != nil {
		t.Fatal(err)
	}
}
