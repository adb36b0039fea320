package advisory_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/stopwatch"
)

// patience bounds each wait of a test for a state. It is no limit on what is
// tested: on a busy machine all takes its time.
const patience = time.Minute

// timed returns a clock of the time in which this process could run.
func timed(t *testing.T) func() time.Duration {
	t.Helper()
	w := stopwatch.Start()
	t.Cleanup(func() { w.Stop() })
	return w.Net
}

// bundle is a database of the test's own, a Locker on it and an observer.
type bundle struct {
	db     *pgtest.Database
	via    *pgtest.Database // the same, by the way that the Lockers take
	pool   *pgxpool.Pool
	locker *advisory.Locker
	raw    *pgxpool.Pool // looks at the server's truth, and plays other software

	isOnPooler bool // a test's own, about which its configs say what is meant
}

func setup(t *testing.T, configure ...func(*pgxpool.Config)) *bundle {
	t.Helper()
	return setupConfig(t, nil, configure...)
}

func setupConfig(t *testing.T, config *advisory.Config, configure ...func(*pgxpool.Config)) *bundle {
	t.Helper()
	return setupOn(t, pgtest.New(t), config, configure...)
}

// setupWith is setup on a server that meets a need.
func setupWith(t *testing.T, need pgtest.Need, configure ...func(*pgxpool.Config)) *bundle {
	t.Helper()
	return setupOn(t, pgtest.NewWith(t, need), nil, configure...)
}

// setupOn is setupConfig on a database that is there.
func setupOn(t *testing.T, db *pgtest.Database, config *advisory.Config, configure ...func(*pgxpool.Config)) *bundle {
	t.Helper()
	b := &bundle{db: db, via: usualWay(t, db), raw: db.Pool(t)}
	b.pool, b.locker = b.another(t, config, configure...)
	return b
}

// another returns one more Locker on a pool of its own, as another process
// would have. Both are closed before the database is dropped, and then no
// advisory lock may be left.
func (b *bundle) another(t *testing.T, config *advisory.Config, configure ...func(*pgxpool.Config)) (*pgxpool.Pool, *advisory.Locker) {
	t.Helper()
	pool := b.via.Pool(t, configure...)
	locker, err := advisory.New(pool, patient(b.usual(config)))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := locker.Close(ctx); err != nil {
			t.Errorf("close the locker: %v", err)
		}
		b.eventually(t, "no connection is pinned", func() bool { return pool.Stat().AcquiredConns() == 0 })
	})
	return pool, locker
}

// eventually polls until a state is reached.
func (b *bundle) eventually(t testing.TB, state string, reached func() bool) {
	t.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for !reached() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not reached within %s: %s", patience, state)
		}
	}
}

// scan runs a query of one row on the observer.
func scan[T any](t testing.TB, b *bundle, sql string, args ...any) T {
	t.Helper()
	var v T
	// Not the test's context: it has ended when cleanups look.
	if err := b.raw.QueryRow(context.Background(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

const advisoryLocks = `FROM pg_locks WHERE locktype = 'advisory'
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

// granted counts the advisory locks held in the database.
func (b *bundle) granted(t testing.TB) int {
	t.Helper()
	return scan[int](t, b, "SELECT count(*) "+advisoryLocks+" AND granted")
}

// waiting counts the sessions that wait for an advisory lock.
func (b *bundle) waiting(t testing.TB) int {
	t.Helper()
	return scan[int](t, b, "SELECT count(*) "+advisoryLocks+" AND NOT granted")
}

// isHeldBy reports whether pid, and no other, holds the bigint lock of key.
func (b *bundle) isHeldBy(t testing.TB, id int64, pid uint32) bool {
	t.Helper()
	return scan[bool](t, b, "SELECT coalesce(array_agg(pid) = ARRAY[$2::int], false) "+advisoryLocks+
		" AND granted AND objsubid = 1 AND (classid::bigint << 32 | objid::bigint) = $1", id, int(pid))
}

// noLockLeft waits for the server to have no advisory lock, granted or waiting.
func (b *bundle) noLockLeft(t testing.TB) {
	t.Helper()
	b.eventually(t, "pg_locks has no advisory lock", func() bool { return b.granted(t) == 0 && b.waiting(t) == 0 })
}

// leakCheck is noLockLeft, and no connection of the Locker's pool in use.
func (b *bundle) leakCheck(t testing.TB) {
	t.Helper()
	b.noLockLeft(t)
	b.eventually(t, "AcquiredConns is 0", func() bool { return b.pool.Stat().AcquiredConns() == 0 })
}

// terminate ends a backend as an administrator would.
func (b *bundle) terminate(t testing.TB, pid uint32) {
	t.Helper()
	require.True(t, scan[bool](t, b, "SELECT pg_terminate_backend($1)", int(pid)))
}

// session is a raw session, held by other software.
func (b *bundle) session(t *testing.T) *pgx.Conn {
	t.Helper()
	return b.db.Conn(t)
}

func exec(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	_, err := conn.Exec(context.Background(), sql, args...)
	require.NoError(t, err)
}

func maxConns(n int32) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.MaxConns = n }
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
