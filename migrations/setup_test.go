package migrations_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// limit bounds every wait for something that is expected to happen.
const limit = time.Minute

// lockKey is the lock that keeps runs apart. It is a wire format: runs of
// different versions must meet.
var lockKey = advisory.Name("pgadvisory: migrations of fencing")

// bundle is a database in which nothing is installed.
type bundle struct {
	db       *pgtest.Database
	pool     *pgxpool.Pool
	observer *pgx.Conn // looks at the server from outside
}

func setup(t *testing.T) *bundle {
	t.Helper()
	db := pgtest.New(t)
	b := &bundle{db: db, pool: db.Pool(t), observer: db.Conn(t)}
	require.NoError(t, migrations.Down(t.Context(), b.pool))
	b.requireNothing(t)
	return b
}

func (b *bundle) up(t *testing.T) {
	t.Helper()
	require.NoError(t, migrations.Up(t.Context(), b.pool))
}

func (b *bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.observer.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func one[T any](t *testing.T, db migrations.Querier, sql string, args ...any) T {
	t.Helper()
	var value T
	require.NoError(t, db.QueryRow(t.Context(), sql, args...).Scan(&value))
	return value
}

// installed is a count of what there is in the schema fencing, and of the
// schema itself.
const installedSQL = `SELECT
	(SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = 'fencing') +
	(SELECT count(*) FROM pg_catalog.pg_class WHERE relnamespace = to_regnamespace('fencing')) +
	(SELECT count(*) FROM pg_catalog.pg_proc WHERE pronamespace = to_regnamespace('fencing'))`

func (b *bundle) requireNothing(t *testing.T) {
	t.Helper()
	require.Zero(t, b.version(t))
	require.Zero(t, one[int](t, b.observer, installedSQL))
}

// newest is the number of the last migration.
const newest = int64(2)

// requireWhole says that all is there, and that it works.
func (b *bundle) requireWhole(t *testing.T) {
	t.Helper()
	require.Equal(t, newest, b.version(t))
	require.Equal(t, newest, one[int64](t, b.observer, `SELECT count(*) FROM fencing.migration WHERE version_id > 0 AND is_applied`))
	b.exec(t, `SELECT pg_advisory_lock(hashtextextended('whole', 0))`)
	require.Positive(t, one[int64](t, b.observer, `SELECT fencing.issue('whole')`))
	b.exec(t, `SELECT pg_advisory_unlock_all()`)
}

func (b *bundle) version(t *testing.T) int64 {
	t.Helper()
	version, err := migrations.Version(t.Context(), b.observer)
	require.NoError(t, err)
	return version
}

// waitForNoLock waits until no session has the lock of the migrations: one that
// was closed may live on for a moment.
func (b *bundle) waitForNoLock(t *testing.T) {
	t.Helper()
	b.waitFor(t, "the lock is free", `SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_locks
		WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))`)
}

// waitFor polls until the query is true.
func (b *bundle) waitFor(t *testing.T, what, query string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		var done bool
		err := b.observer.QueryRow(ctx, query, args...).Scan(&done)
		require.NoError(t, err, "waiting until %s", what)
		if done {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			require.FailNow(t, "waited too long", "until %s", what)
		}
	}
}

// requireGivenBack waits until the pool has all its connections: after a context
// has ended, the last one may be closed in the background.
func requireGivenBack(t *testing.T, pool *pgxpool.Pool) {
	t.Helper()
	require.Eventually(t, func() bool { return pool.Stat().AcquiredConns() == 0 }, limit, 5*time.Millisecond)
}

// stall makes the statements with the tag wait, in the middle of the
// migrations, until the returned function is called.
func (b *bundle) stall(t *testing.T, tag string) (goOn func()) {
	t.Helper()
	b.exec(t, `CREATE FUNCTION gate() RETURNS event_trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_xact_lock_shared(17, 17); END $$`)
	b.exec(t, `CREATE EVENT TRIGGER gate ON ddl_command_start WHEN TAG IN ('`+tag+`') EXECUTE FUNCTION gate()`)
	b.exec(t, `SELECT pg_advisory_lock(17, 17)`)
	return func() {
		t.Helper()
		b.exec(t, `SELECT pg_advisory_unlock(17, 17)`)
	}
}

// waitForStalled returns the backend that migrates and is stalled.
func (b *bundle) waitForStalled(t *testing.T) (pid uint32) {
	t.Helper()
	const stalled = ` FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND classid = 17 AND objid = 17 AND NOT granted
		AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())`
	b.waitFor(t, "the migrations are under way", `SELECT EXISTS (SELECT`+stalled+`)`)
	return one[uint32](t, b.observer, `SELECT pid`+stalled)
}

// inBackground runs f on another goroutine, which ends with it; the test
// receives its result.
func inBackground(f func() error) <-chan error {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return result
}

func receive(t *testing.T, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(limit):
		require.FailNow(t, "nothing came in time")
		return nil
	}
}

func requireCode(t *testing.T, err error, code string) {
	t.Helper()
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, code, pgErr.Code, "%s", pgErr.Message)
}
