package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

func TestUp_installsOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.up(t)
	b.requireWhole(t)
	const content = `SELECT (SELECT array_agg(x::text) FROM fencing.migration x)::text
		|| (SELECT array_agg(x::text) FROM fencing.resource x)::text`
	before := one[string](t, b.observer, content)
	objects := one[int](t, b.observer, installedSQL)

	b.up(t)
	require.Equal(t, before, one[string](t, b.observer, content))
	require.Equal(t, objects, one[int](t, b.observer, installedSQL))
	b.requireWhole(t)
	b.waitForNoLock(t)
}

func TestUp_worksWithASchemaThatIsThere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE SCHEMA fencing`)
	b.up(t)
	b.requireWhole(t)
}

func TestDown_removesAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.up(t)
	b.requireWhole(t)
	require.NoError(t, migrations.Down(t.Context(), b.pool))
	b.requireNothing(t)
	b.waitForNoLock(t)
	require.NoError(t, migrations.Down(t.Context(), b.pool))
	b.requireNothing(t)

	// With the marks; tokens begin anew.
	b.up(t)
	require.Zero(t, one[int](t, b.observer, `SELECT count(*) FROM fencing.resource`))
	b.exec(t, `SELECT pg_advisory_lock(hashtextextended('nightly', 0))`)
	require.Equal(t, int64(1), one[int64](t, b.observer, `SELECT fencing.issue('nightly')`))
}

func TestDown_refusesWhileATableIsGuarded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.up(t)
	b.exec(t, `CREATE TABLE exports (id int); CREATE SCHEMA archive; CREATE TABLE archive."My exports" (id int)`)
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "exports", "nightly"))
	require.NoError(t, fencing.Guard(t.Context(), b.pool, `archive."My exports"`, "nightly"))
	objects := one[int](t, b.observer, installedSQL)

	err := migrations.Down(t.Context(), b.pool)
	requireCode(t, err, "2BP01")
	require.ErrorContains(t, err, `it guards archive."My exports", public.exports`)
	require.ErrorContains(t, err, "migrations: down")
	require.Equal(t, objects, one[int](t, b.observer, installedSQL))
	b.requireWhole(t)
	b.waitForNoLock(t)
	_, err = b.observer.Exec(t.Context(), `INSERT INTO exports VALUES (1)`)
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)

	require.NoError(t, fencing.Unguard(t.Context(), b.pool, "exports"))
	requireCode(t, migrations.Down(t.Context(), b.pool), "2BP01")
	require.NoError(t, fencing.Unguard(t.Context(), b.pool, `archive."My exports"`))
	require.NoError(t, migrations.Down(t.Context(), b.pool))
	b.requireNothing(t)
}

func TestDown_refusesWhileSomethingElseDependsOnTheSchema(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ make, remove string }{
		"view of the marks": {
			`CREATE VIEW holders AS SELECT name, mark FROM fencing.resource`,
			`DROP VIEW holders`,
		},
		"foreign key": {
			`CREATE TABLE job (name text REFERENCES fencing.known_resource)`,
			`DROP TABLE job`,
		},
		"default": {
			`CREATE TABLE job (token bigint DEFAULT nextval('fencing.token'))`,
			`DROP TABLE job`,
		},
		"table in the schema": {
			`CREATE TABLE fencing.job (name text)`,
			`DROP TABLE fencing.job`,
		},
		"function in the schema": {
			`CREATE FUNCTION fencing.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'`,
			`DROP FUNCTION fencing.mine()`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.up(t)
			b.requireWhole(t)
			b.exec(t, c.make)
			objects := one[int](t, b.observer, installedSQL)
			marks := one[string](t, b.observer, `SELECT array_agg(x::text)::text FROM fencing.resource x`)

			requireCode(t, migrations.Down(t.Context(), b.pool), "2BP01")
			b.waitForNoLock(t)
			require.Equal(t, newest, b.version(t))
			require.Equal(t, objects, one[int](t, b.observer, installedSQL))
			require.Equal(t, marks, one[string](t, b.observer, `SELECT array_agg(x::text)::text FROM fencing.resource x`))

			b.exec(t, c.remove)
			require.NoError(t, migrations.Down(t.Context(), b.pool))
			b.requireNothing(t)
		})
	}
}

func TestVersion_asksWhateverCanQuery(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		version, err := migrations.Version(t.Context(), tx)
		require.Zero(t, version)
		return err
	}))
	b.up(t)
	version, err := migrations.Version(t.Context(), b.pool)
	require.NoError(t, err)
	require.Equal(t, newest, version)
}

// The pool is the application's, whatever it is set to.
func TestUp_worksOnPoolsOfEveryKind(t *testing.T) {
	t.Parallel()
	with := func(name, value string) func(*pgxpool.Config) {
		return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
	}
	for name, configure := range map[string]func(*pgxpool.Config){
		"one connection":  func(c *pgxpool.Config) { c.MaxConns = 1 },
		"simple protocol": func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol },
		"exec mode":       func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec },
		"repeatable read": with("default_transaction_isolation", "repeatable read"),
		"serializable":    with("default_transaction_isolation", "serializable"),
		"no search_path":  with("search_path", ""),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			pool := b.db.Pool(t, configure)
			require.NoError(t, migrations.Up(t.Context(), pool))
			require.Zero(t, pool.Stat().AcquiredConns())
			b.requireWhole(t)
			require.NoError(t, migrations.Up(t.Context(), pool))
			require.NoError(t, migrations.Down(t.Context(), pool))
			b.requireNothing(t)
			b.waitForNoLock(t)
			require.Zero(t, pool.Stat().AcquiredConns())
			require.NoError(t, pool.Ping(t.Context()))
		})
	}
}

func TestUp_refusesANilOrClosedPool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.ErrorContains(t, migrations.Up(t.Context(), nil), "the pool is nil")
	pool := b.db.Pool(t)
	pool.Close()
	require.Error(t, migrations.Up(t.Context(), pool))
	b.requireNothing(t)
}

func TestDown_refusesANilOrClosedPool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.up(t)
	pool := b.db.Pool(t)
	pool.Close()
	require.Error(t, migrations.Down(t.Context(), pool))
	b.requireWhole(t)
	require.NotPanics(t, func() {
		require.ErrorContains(t, migrations.Down(t.Context(), nil), "the pool is nil")
	})
}
