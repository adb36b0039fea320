package fencing_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

func TestRevokeFrom_takesAllAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	role := b.role(t)
	const privileges = `SELECT has_schema_privilege($1, 'fencing', 'USAGE')::int
		+ has_function_privilege($1, 'fencing.issue(text)', 'EXECUTE')::int
		+ has_function_privilege($1, 'fencing.stamp(text, bigint, interval)', 'EXECUTE')::int`
	b.exec(t, `GRANT ALL ON exports TO `+role)
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	require.Equal(t, 3, one[int](t, b.observer, privileges, role))
	b.exec(t, `SELECT fencing.revoke_from($1::text::regrole)`, role)
	require.Zero(t, one[int](t, b.observer, privileges, role))
	_, err := b.observer.Exec(t.Context(), `SELECT fencing.revoke_from(NULL)`)
	requireCode(t, err, "22023")

	pool := b.as(t, role)
	_, err = newFencer(t, pool, nil, nil).TryLock(t.Context(), "nightly")
	requireCode(t, err, "42501")
	for _, sql := range []string{
		`SELECT fencing.stamp('nightly', 1)`, `SELECT * FROM fencing.verify()`, `SELECT * FROM fencing.resource`, `SELECT fencing.version()`,
	} {
		_, err = pool.Exec(t.Context(), sql)
		requireCode(t, err, "42501")
	}
	b.waitForNoLock(t)
}

// owner is a role that owns a schema, in which it creates what it likes, and
// its sessions.
func (b *bundle) ownerOf(t *testing.T, schema string) (role string, pool *pgxpool.Pool) {
	t.Helper()
	role = b.role(t)
	b.exec(t, `CREATE SCHEMA `+schema+` AUTHORIZATION `+role)
	return role, b.db.Pool(t, with("role", role), with("search_path", schema), large)
}

// Who guards a table has no rights but its own by that, also not by way of the
// functions that come with its types.
func TestGuardBy_runsNothingOfTheTablesOwnerWithMoreRights(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role, pool := b.ownerOf(t, "mine")
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	_, err := pool.Exec(t.Context(), `
		CREATE TABLE ran (as_role name);
		GRANT INSERT ON ran TO PUBLIC;
		CREATE TYPE mood AS ENUM ('sad', 'fine');
		CREATE FUNCTION to_text(mood) RETURNS text LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO mine.ran VALUES (current_user); RETURN 'fine'; END $$;
		CREATE CAST (mood AS text) WITH FUNCTION to_text(mood);
		CREATE TABLE orders (id int, tenant mood, fencing_token bigint) PARTITION BY RANGE (id);
		CREATE TABLE first PARTITION OF orders FOR VALUES FROM (0) TO (10)`)
	require.NoError(t, err)
	require.NoError(t, fencing.GuardBy(t.Context(), pool, "orders", "tenant"))
	_, err = pool.Exec(t.Context(), `CREATE TABLE later PARTITION OF orders DEFAULT`)
	require.NoError(t, err)
	lease := b.lock(t, b.fencer, "sad")
	for _, sql := range []string{
		`INSERT INTO mine.orders VALUES (1, 'sad'), (11, 'sad')`, `INSERT INTO mine.later VALUES (12, 'sad')`,
		`UPDATE mine.orders SET id = id + 5`, `DELETE FROM mine.orders`,
	} {
		require.NoError(t, lease.InTx(t.Context(), b.pool, statementOf(t, sql)), sql)
	}
	for _, sql := range []string{`INSERT INTO mine.orders VALUES (1, 'fine')`, `INSERT INTO mine.later VALUES (12, 'fine')`} {
		require.ErrorIs(t, lease.InTx(t.Context(), b.pool, statementOf(t, sql)), fencing.ErrUnstamped, sql)
	}
	require.Empty(t, b.contents(t, "mine.ran"))
	b.exec(t, `DROP SCHEMA mine CASCADE`) // a cast belongs to no role
}

// Nor does who may only lock, by a trigger of its own that calls the same
// functions.
func TestGuardBy_readsNothingButTheRowsOfItsStatement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role, pool := b.ownerOf(t, "mine")
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), `
		CREATE TABLE ran (as_role name);
		GRANT INSERT ON ran TO PUBLIC;
		CREATE FUNCTION evil() RETURNS text LANGUAGE plpgsql AS
			$$ BEGIN INSERT INTO mine.ran VALUES (current_user); RETURN 'a'; END $$;
		CREATE TABLE orders (tenant text);
		SELECT fencing.make_checker('tenant');
		CREATE TRIGGER t AFTER INSERT ON orders FOR EACH STATEMENT EXECUTE FUNCTION fencing.check_by_adfb689897b2b5255adcaee72945c791('tenant', '');
		CREATE TEMP VIEW fencing_new AS SELECT mine.evil() AS tenant`)
	require.NoError(t, err)
	for _, sql := range []string{
		`INSERT INTO orders VALUES ('a')`,
		`DO $$ BEGIN INSERT INTO orders VALUES ('a'); EXCEPTION WHEN insufficient_privilege THEN NULL; END $$`,
	} {
		_, err = conn.Exec(t.Context(), `BEGIN; SELECT fencing.stamp('a', 1); `+sql)
		requireCode(t, err, "42710")
		_, err = conn.Exec(t.Context(), `ROLLBACK`)
		require.NoError(t, err)
	}
	_, err = conn.Exec(t.Context(), `DROP VIEW fencing_new`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `INSERT INTO orders VALUES ('a')`)
	requireCode(t, err, "42P01")
	require.Empty(t, b.contents(t, "mine.ran"))
}

func TestGuard_isForTheOwnerOfTheWholeFamily(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role, pool := b.ownerOf(t, "mine")
	_, err := pool.Exec(t.Context(), `CREATE TABLE orders (id int, tenant text) PARTITION BY RANGE (id); CREATE TABLE first PARTITION OF orders DEFAULT`)
	require.NoError(t, err)
	requireCode(t, fencing.GuardBy(t.Context(), pool, "orders", "tenant"), "42501") // without USAGE on the schema
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	require.NoError(t, fencing.GuardBy(t.Context(), pool, "orders", "tenant"))
	require.Empty(t, problems(t, pool, "mine.orders"))
	require.NoError(t, fencing.Unguard(t.Context(), pool, "orders"))

	// A partition of somebody else's can't be guarded, and so nothing is.
	b.exec(t, `ALTER TABLE mine.first OWNER TO current_user`)
	requireCode(t, fencing.GuardBy(t.Context(), pool, "orders", "tenant"), "42501")
	report, err := fencing.Verify(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, &fencing.Report{}, report)
}

// An event trigger fires for everybody, also for those who know nothing of
// this schema.
func TestOnDDL_leavesOthersAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role, pool := b.ownerOf(t, "mine")
	b.exec(t, eventTriggerSQL)
	_, err := pool.Exec(t.Context(), `CREATE TABLE orders (id int, tenant text) PARTITION BY RANGE (id);
		CREATE TABLE first PARTITION OF orders FOR VALUES FROM (0) TO (10);
		ALTER TABLE orders ADD note text; CREATE TABLE parent (id int); CREATE TABLE child () INHERITS (parent)`)
	require.NoError(t, err)
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "mine.orders", "nightly"))
	_, err = pool.Exec(t.Context(), `ALTER TABLE orders ADD more text; ALTER TABLE first ALTER note SET DEFAULT ''`)
	require.NoError(t, err)

	// To guard the new partition takes the schema.
	const more = `CREATE TABLE second PARTITION OF orders DEFAULT`
	_, err = pool.Exec(t.Context(), more)
	requireCode(t, err, "42501")
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	_, err = pool.Exec(t.Context(), more)
	require.NoError(t, err)
	require.Empty(t, problems(t, pool, "mine.orders"))
	_, err = pool.Exec(t.Context(), `TRUNCATE second`)
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
}

func TestOnDDL_keepsAGuardedTableFromBecomingAPart(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, eventTriggerSQL)
	b.exec(t, `CREATE TABLE x (id int, tenant text) PARTITION BY RANGE (id); CREATE TABLE y (id int, tenant text) PARTITION BY LIST (tenant)`)
	b.exec(t, `CREATE TABLE z (id int, tenant text); CREATE TABLE parent (id int); CREATE TABLE child () INHERITS (parent); CREATE TABLE other (id int)`)
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "parent", "nightly"))
	_, err := b.observer.Exec(t.Context(), `ALTER TABLE child INHERIT other`)
	requireCode(t, err, "55000")
	require.ErrorContains(t, err, "public.child is guarded and can't become a part of public.other")
	for _, table := range []string{"x", "z"} {
		require.NoError(t, fencing.Guard(t.Context(), b.pool, table, "nightly"))
		_, err := b.observer.Exec(t.Context(), `ALTER TABLE y ATTACH PARTITION `+table+` DEFAULT`)
		require.Error(t, err)
		require.Empty(t, problems(t, b.pool, "public."+table))
	}
}
