package migrations_test

import (
	"context"
	"crypto/rand"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// goTo brings the database to a version in between, with the record of Up.
func (b *bundle) goTo(t *testing.T, version int64) error {
	t.Helper()
	b.exec(t, `CREATE SCHEMA IF NOT EXISTS fencing`)
	db := stdlib.OpenDBFromPool(b.pool)
	defer func() { require.NoError(t, db.Close()) }()
	provider, err := goose.NewProvider(goose.DialectPostgres, db, migrations.FS,
		goose.WithTableName("fencing.migration"), goose.WithDisableGlobalRegistry(true))
	require.NoError(t, err)
	if version < b.version(t) {
		_, err = provider.DownTo(t.Context(), version)
	} else {
		_, err = provider.UpTo(t.Context(), version)
	}
	return err
}

// inUse is all that an upgrade has to leave as it is.
const inUse = `SELECT concat_ws(E'\n',
	(SELECT string_agg(r::text, ' ' ORDER BY r.name) FROM fencing.resource r), (SELECT o::text FROM fencing.origin o),
	(SELECT last_value FROM fencing.token), (SELECT nspacl FROM pg_namespace WHERE nspname = 'fencing'),
	(SELECT string_agg(p.oid::regprocedure || coalesce(p.proacl::text, '') || p.proowner::regrole, ' ' ORDER BY p.oid) FROM pg_proc p
		WHERE p.oid IN ('fencing.issue(text)'::regprocedure, 'fencing.stamp(text, bigint, interval)'::regprocedure)))`

func TestUp_fromThePreviousVersionKeepsWhatIsInUse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.goTo(t, 1))
	b.requireState(t, 1)
	role := "pgtest_role_" + strings.ToLower(rand.Text())
	b.exec(t, `CREATE ROLE `+role)
	conn := b.db.Conn(t)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		require.NoError(t, err)
	})
	b.exec(t, `SELECT fencing.grant_to('`+role+`'); CREATE TABLE exports (id int); GRANT ALL ON exports TO `+role)
	pool := b.db.Pool(t, func(c *pgxpool.Config) {
		c.MaxConns = 5
		c.ConnConfig.RuntimeParams["role"] = role
	})
	locker, err := advisory.New(pool, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, locker.Close(context.Background())) })
	fencer, err := fencing.New(locker, nil)
	require.NoError(t, err)
	for _, resource := range []string{"nightly", "hourly", "daily", "nightly"} {
		lease, err := fencer.Lock(t.Context(), resource)
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
	}
	// What the new version brings is not there yet, and says so.
	require.ErrorIs(t, fencing.Guard(t.Context(), b.pool, "exports", "nightly"), fencing.ErrNotInstalled)
	held, err := fencer.Lock(t.Context(), "nightly")
	require.NoError(t, err)
	before := one[string](t, b.observer, inUse)

	b.up(t)
	b.requireState(t, newest)
	require.Equal(t, before, one[string](t, b.observer, inUse))
	require.NoError(t, held.Err())
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "exports", "nightly"))
	insert := func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO exports VALUES (1)`)
		return err
	}
	require.NoError(t, held.InTx(t.Context(), pool, insert))
	require.NoError(t, held.Unlock(t.Context()))
	next, err := fencer.Lock(t.Context(), "nightly")
	require.NoError(t, err)
	require.Equal(t, held.Token()+1, next.Token())
	require.ErrorIs(t, held.InTx(t.Context(), pool, insert), fencing.ErrStale)
	require.NoError(t, next.InTx(t.Context(), pool, insert))
	report, err := fencing.Verify(t.Context(), pool)
	require.NoError(t, err)
	require.True(t, report.OK(), "%+v", report)
	require.NoError(t, next.Unlock(t.Context()))

	// And back again, once nothing is guarded.
	require.Error(t, b.goTo(t, 1))
	require.NoError(t, fencing.Unguard(t.Context(), b.pool, "exports"))
	before = one[string](t, b.observer, inUse)
	require.NoError(t, b.goTo(t, 1))
	b.requireState(t, 1)
	require.Equal(t, before, one[string](t, b.observer, inUse))
	b.up(t)
	b.requireState(t, newest)
	require.Equal(t, before, one[string](t, b.observer, inUse))
}

func TestDown_byOneStepRefusesWhileATableIsGuarded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.up(t)
	b.exec(t, `CREATE TABLE parted (id int, tenant text) PARTITION BY RANGE (id);
		CREATE TABLE parted1 PARTITION OF parted DEFAULT;
		CREATE TABLE parent (id int); CREATE TABLE child () INHERITS (parent);
		CREATE TABLE orders (id int, tenant text);
		SELECT fencing.guard_by('parted', 'tenant'), fencing.guard('parent', 'nightly'), fencing.guard_by('orders', 'tenant')`)
	const triggers = `SELECT string_agg(pg_get_triggerdef(oid) || tgenabled::text, ' ' ORDER BY tgrelid, tgname) FROM pg_trigger`
	before, objects := one[string](t, b.observer, triggers), one[int](t, b.observer, installedSQL)
	for _, down := range []func() error{
		func() error { return b.goTo(t, 1) },
		func() error { return migrations.Down(t.Context(), b.pool) },
	} {
		err := down()
		requireCode(t, err, "2BP01")
		require.ErrorContains(t, err, "it guards public.child, public.orders, public.parent, public.parted, public.parted1")
		b.requireState(t, newest)
		require.Equal(t, before, one[string](t, b.observer, triggers))
		require.Equal(t, objects, one[int](t, b.observer, installedSQL))
	}
	for _, table := range []string{"parted", "parent", "orders"} {
		requireCode(t, b.goTo(t, 1), "2BP01")
		require.NoError(t, fencing.Unguard(t.Context(), b.pool, table))
	}
	require.NoError(t, migrations.Down(t.Context(), b.pool))
	b.requireNothing(t)
}

func TestDown_fromThePreviousVersionRemovesAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.goTo(t, 1))
	// What is not the migrations' own is in the way here too.
	b.exec(t, `CREATE TABLE fencing.job (name text)`)
	requireCode(t, migrations.Down(t.Context(), b.pool), "2BP01")
	b.exec(t, `DROP TABLE fencing.job`)
	require.NoError(t, migrations.Down(t.Context(), b.pool))
	b.requireNothing(t)
}

func TestUp_fromThePreviousVersionByManyAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.goTo(t, 1))
	var work sync.WaitGroup
	for range 8 {
		pool := b.db.Pool(t)
		// Ends with Up; the test waits for it.
		work.Go(func() {
			if err := migrations.Up(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	b.requireWhole(t)
	b.waitForNoLock(t)
}

// The lock goes with the session that migrates. A run that loses both stops,
// and does not go on with another session.
func TestUp_stopsWhenItsLockIsLostBetweenTwoMigrations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// At the first statement of the second.
	b.exec(t, `CREATE FUNCTION gate() RETURNS event_trigger LANGUAGE plpgsql AS
		$$ BEGIN IF to_regprocedure('fencing.version()') IS NOT NULL THEN PERFORM pg_advisory_xact_lock_shared(17, 17); END IF; END $$`)
	b.exec(t, `CREATE EVENT TRIGGER gate ON ddl_command_start WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION gate()`)
	b.exec(t, `SELECT pg_advisory_lock(17, 17)`)
	b.interrupt(t, migrations.Up, `SELECT pg_terminate_backend($1)`)
	b.requireState(t, 1)
	b.exec(t, `SELECT pg_advisory_unlock(17, 17)`)
	b.waitForNoLock(t)
	b.requireState(t, 1)
	b.up(t)
	b.requireWhole(t)
}
