package fencing_test

import (
	"crypto/md5"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// checkerOf is the function that fencing.guard_by makes for a column.
func checkerOf(column string) string {
	return fmt.Sprintf("fencing.check_by_%x()", md5.Sum([]byte(column)))
}

// byTenant is a table that is guarded by a column, and leases of two of its resources.
func byTenant(t *testing.T, b *bundle) (acme, beta *fencing.Lease) {
	t.Helper()
	b.exec(t, `CREATE TABLE orders (id int, tenant text)`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "orders", "tenant"))
	return b.lock(t, b.fencer, "acme"), b.lock(t, b.fencer, "beta")
}

func TestChecker_isOneForEachNameOfAColumn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE one (tenant text); CREATE TABLE two (id int, tenant int) PARTITION BY LIST (tenant);
		CREATE TABLE part (tenant int, id int); ALTER TABLE two ATTACH PARTITION part DEFAULT; CREATE TABLE three ("Tenant" text)`)
	const countSQL = `SELECT count(*) FROM fencing.checkers()`
	for table, column := range map[string]string{"one": "tenant", "two": "tenant", "three": "Tenant"} {
		require.NoError(t, fencing.GuardBy(t.Context(), b.pool, table, column))
	}
	require.Equal(t, 2, one[int](t, b.observer, countSQL))
	requireGuardsBy(t, b, "one", "'7'", "7")
	requireGuardsBy(t, b, "two", "1, 7", "7")
	requireGuardsBy(t, b, "part", "7, 1", "7")
	for _, table := range []string{"one", "two", "three"} {
		require.NoError(t, fencing.Unguard(t.Context(), b.pool, table))
	}
	require.Equal(t, 2, one[int](t, b.observer, countSQL), "they are for the next guard")
	require.Empty(t, problems(t, b.pool, ""))
}

func TestVerify_findsWhatHappenedToAChecker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	byTenant(t, b)
	conn, role := b.db.Conn(t), b.role(t)
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	checker := checkerOf("tenant")
	altered := "the function " + checker + " is not the one that fencing.guard_by makes"
	for _, c := range []struct{ sql, what string }{
		{`CREATE OR REPLACE FUNCTION %s RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS 'BEGIN RETURN NULL; END'`, altered},
		{`DO $do$ BEGIN EXECUTE replace(pg_get_functiondef('%s'::regprocedure), 'LIMIT 2', 'LIMIT 1'); END $do$`, altered},
		{`DO $do$ BEGIN EXECUTE replace(pg_get_functiondef('%s'::regprocedure), '"tenant"', '"id"'); END $do$`, altered},
		{`ALTER FUNCTION %s RESET ALL`, altered},
		{`ALTER FUNCTION %s SET search_path = public`, altered},
		{`ALTER FUNCTION %s SET role = ` + role, altered},
		{`ALTER FUNCTION %s SECURITY INVOKER`, altered},
		{`ALTER FUNCTION %s STRICT`, altered},
		{`ALTER FUNCTION %s IMMUTABLE`, altered},
		{`ALTER FUNCTION %s OWNER TO ` + role, "the function " + checker + " has another owner than the schema"},
		{`GRANT EXECUTE ON FUNCTION %s TO ` + role + ` WITH GRANT OPTION`, role + " may grant others EXECUTE on the function " + checker},
		{`REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC`, "PUBLIC lacks EXECUTE on the function " + checker},
		{`CREATE FUNCTION fencing.check_by_00000000000000000000000000000000() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`, "the function fencing.check_by_0"},
	} {
		require.NoError(t, errRollback(t, conn, func(tx pgx.Tx) {
			sql := strings.ReplaceAll(c.sql, "%s", checker)
			_, err := tx.Exec(t.Context(), sql)
			require.NoError(t, err, sql)
			requireFound(t, tx, "", []string{c.what})
			_, err = tx.Exec(t.Context(), problems(t, tx, "")[0].Fix)
			require.NoError(t, err, sql)
			require.Empty(t, problems(t, tx, ""), sql)
			require.Empty(t, problems(t, tx, "public.orders"), sql)
		}))
	}
	require.NoError(t, errRollback(t, conn, func(tx pgx.Tx) {
		_, err := tx.Exec(t.Context(), `CREATE FUNCTION `+strings.Replace(checker, "()", "(int)", 1)+` RETURNS int LANGUAGE sql AS 'SELECT 1'`)
		require.NoError(t, err)
		requireFound(t, tx, "", []string{"the function " + strings.Replace(checker, "()", "(integer)", 1) + " does not belong to fencing"})
	}))
	require.NoError(t, errRollback(t, conn, func(tx pgx.Tx) {
		_, err := tx.Exec(t.Context(), `DROP FUNCTION `+checker+` CASCADE`)
		require.NoError(t, err)
		require.NotEmpty(t, problems(t, tx, "public.orders"))
		_, err = tx.Exec(t.Context(), problems(t, tx, "public.orders")[0].Fix)
		require.NoError(t, err)
		require.Empty(t, problems(t, tx, "public.orders"))
	}))
}

// Whoever may use the schema can have a checker made or mended, as a guard does, and can do
// nothing else to it.
func TestChecker_isTheSchemasOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role, pool := b.ownerOf(t, "mine")
	checker := checkerOf("tenant")
	_, err := pool.Exec(t.Context(), `SELECT fencing.make_checker('tenant')`)
	requireCode(t, err, "42501")
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	b.exec(t, `ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO `+role+` WITH GRANT OPTION; ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC`)
	_, err = pool.Exec(t.Context(), `CREATE TABLE orders (tenant text); SELECT fencing.guard_by('orders', 'tenant')`)
	require.NoError(t, err)
	require.Empty(t, problems(t, b.pool, ""), "whatever the default privileges are")
	require.Empty(t, problems(t, b.pool, "mine.orders"))
	for _, sql := range []string{
		`ALTER FUNCTION %s RESET ALL`, `ALTER FUNCTION %s RENAME TO other`, `DROP FUNCTION %s CASCADE`, `ALTER FUNCTION %s SET SCHEMA mine`,
		`CREATE OR REPLACE FUNCTION %s RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
		`SELECT fencing.is_current('acme')`, `SELECT fencing.refuse_shadows('INSERT', 'mine', 'orders')`, `SELECT fencing.refuse_column('orders', 'tenant')`,
	} {
		_, err := pool.Exec(t.Context(), strings.ReplaceAll(sql, "%s", checker))
		requireCode(t, err, "42501")
	}
	b.exec(t, `ALTER FUNCTION `+checker+` SECURITY INVOKER`)
	_, err = pool.Exec(t.Context(), `SELECT fencing.make_checker('tenant')`)
	require.NoError(t, err)
	require.Empty(t, problems(t, b.pool, ""))
}

// Whoever may use the schema can keep a checker that is not committed. Others wait for it, but
// keep no writer waiting.
func TestGuardBy_waitsForACheckerBeforeItLocksTheTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE orders (id int, tenant text)`)
	slow, err := b.db.Conn(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = slow.Exec(t.Context(), `SELECT fencing.make_checker('tenant')`)
	require.NoError(t, err)
	guarded := make(chan error, 1)
	conn := b.db.Conn(t)
	// Ends with GuardBy; the test receives its result.
	go func() { guarded <- fencing.GuardBy(t.Context(), conn, "orders", "tenant") }()
	b.waitFor(t, "it waits", `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE pid = $1 AND NOT granted)`, conn.PgConn().PID())
	require.Zero(t, one[int](t, b.observer, `SELECT count(*) FROM pg_catalog.pg_locks WHERE relation = 'orders'::regclass AND mode = 'ShareRowExclusiveLock'`))
	require.NoError(t, slow.Commit(t.Context()))
	require.NoError(t, receive(t, guarded))
	require.Empty(t, problems(t, b.pool, "public.orders"))
}

// One session, which has the plans of before.
func TestGuardBy_followsItsColumn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	acme, beta := byTenant(t, b)
	conn := b.db.Conn(t)
	exec := func(sql string) error {
		return acme.InTx(t.Context(), conn, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), sql, pgx.QueryExecModeExec)
			return err
		})
	}
	requireChecked := func(what string) {
		t.Helper()
		require.NoError(t, exec(`INSERT INTO orders (id, tenant) VALUES (1, 'acme')`), what)
		require.NoError(t, exec(`INSERT INTO orders (id, tenant) VALUES (2, 'acme'), (3, 'acme')`), what)
		require.NoError(t, exec(`UPDATE orders SET id = id + 1`), what)
		require.ErrorIs(t, exec(`INSERT INTO orders (id, tenant) VALUES (1, 'beta')`), fencing.ErrUnstamped, what)
		require.ErrorIs(t, exec(`INSERT INTO orders (id, tenant) VALUES (1, 'acme'), (2, 'acme'), (3, 'beta')`), fencing.ErrUnstamped, what)
		require.ErrorIs(t, exec(`UPDATE orders SET tenant = 'beta' WHERE id = 2`), fencing.ErrUnstamped, what)
		require.NoError(t, exec(`DELETE FROM orders`), what)
		require.Equal(t, 0, one[int](t, b.observer, `SELECT count(*) FROM orders`), what)
	}
	requireRefused := func(what string) {
		t.Helper()
		for _, sql := range []string{`INSERT INTO orders (id) VALUES (1)`, `INSERT INTO orders (id) VALUES (1), (2)`} {
			err := exec(sql)
			requireCode(t, err, "42703")
			require.ErrorContains(t, err, "has no column tenant", what)
		}
	}
	requireChecked("as it was made")
	b.exec(t, `ALTER TABLE orders RENAME tenant TO customer`)
	requireRefused("renamed")
	b.exec(t, `ALTER TABLE orders RENAME customer TO tenant`)
	requireChecked("renamed back")
	b.exec(t, `ALTER TABLE orders DROP tenant`)
	requireRefused("dropped")
	b.exec(t, `ALTER TABLE orders ADD more int, ADD tenant text`)
	requireChecked("made anew")
	b.exec(t, `CREATE TYPE customer AS ENUM ('acme', 'beta')`)
	for _, kind := range []string{`varchar(20)`, `name`, `customer`, `text`} {
		b.exec(t, fmt.Sprintf(`ALTER TABLE orders ALTER tenant TYPE %s USING tenant::text::%[1]s`, kind))
		requireChecked("as " + kind)
	}
	b.exec(t, `CREATE SCHEMA elsewhere; ALTER TABLE orders SET SCHEMA elsewhere; ALTER TABLE elsewhere.orders RENAME TO others; CREATE VIEW orders AS SELECT * FROM elsewhere.others`)
	requireChecked("in another schema, under another name, by way of a view")
	b.exec(t, `CREATE SCHEMA traps; CREATE TABLE traps.fencing_new (tenant text); INSERT INTO traps.fencing_new VALUES ('acme')`)
	_, err := conn.Exec(t.Context(), `SET search_path = traps, public`)
	require.NoError(t, err)
	requireChecked("with another table of the name")
	require.NoError(t, beta.Unlock(t.Context()))
}

// Each name, when the column has it and when it has it no more, which leaves other things of
// that name to be found.
func TestGuardBy_takesNothingElseForItsColumn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE orders (id int, tenant text)`)
	lease := b.lock(t, b.fencer, "acme")
	conn := b.db.Conn(t)
	column := "tenant"
	for _, name := range []string{
		"new", "old", "found", "tg_op", "tg_table_name", "sqlstate", "fencing_new", "fencing_old", "fencing_values", "fencing_rows", "d", "value", "values",
		"row_to_json", "to_json", "text", "format", "name", "count", "case", "%s", "%1$s", `'`, `"`, `\`, "$1", "$$", "$body$", "a\nb", "-- a", "größe 漢字", "Tenant", " ",
	} {
		b.exec(t, `ALTER TABLE orders RENAME `+ident(column)+` TO `+ident(name))
		column = name
		require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "orders", name), name)
		require.Empty(t, problems(t, b.pool, "public.orders"), name)
		require.Empty(t, problems(t, b.pool, ""), name)
		exec := func(sql string) error {
			return lease.InTx(t.Context(), conn, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), sql, pgx.QueryExecModeExec)
				return err
			})
		}
		require.NoError(t, exec(`INSERT INTO orders VALUES (1, 'acme')`), name)
		require.NoError(t, exec(`INSERT INTO orders VALUES (1, 'acme'), (2, 'acme'), (3, 'acme')`), name)
		require.NoError(t, exec(`UPDATE orders SET id = id + 1`), name)
		require.ErrorIs(t, exec(`INSERT INTO orders VALUES (1, 'acme'), (2, 'beta')`), fencing.ErrUnstamped, name)
		b.exec(t, `ALTER TABLE orders RENAME `+ident(name)+` TO gone`)
		for _, sql := range []string{`INSERT INTO orders VALUES (1, 'acme')`, `INSERT INTO orders VALUES (1, 'acme'), (2, 'acme')`, `UPDATE orders SET id = 7`, `DELETE FROM orders`} {
			requireCode(t, exec(sql), "42703")
		}
		b.exec(t, `ALTER TABLE orders RENAME gone TO `+ident(name))
		require.NoError(t, exec(`DELETE FROM orders`), name)
		require.NoError(t, fencing.Unguard(t.Context(), b.pool, "orders"))
	}
}
