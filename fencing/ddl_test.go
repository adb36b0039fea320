package fencing_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// additions are the commands by which something becomes a part of a guarded table:
// the child kid of parent, and the partition kid of parted.
var additions = map[string]string{
	"CREATE TABLE INHERITS":         `CREATE TABLE kid () INHERITS (parent)`,
	"CREATE TABLE PARTITION OF":     `CREATE TABLE kid PARTITION OF parted DEFAULT`,
	"CREATE TABLE, twice removed":   `CREATE TABLE middle () INHERITS (parent); CREATE TABLE kid () INHERITS (middle)`,
	"ALTER TABLE INHERIT":           `CREATE TABLE kid (id int, tenant text); ALTER TABLE kid INHERIT parent`,
	"ALTER TABLE ATTACH PARTITION":  `CREATE TABLE kid (id int, tenant text); ALTER TABLE parted ATTACH PARTITION kid DEFAULT`,
	"CREATE TABLE AS, ALTER TABLE":  `CREATE TABLE kid AS SELECT 1 AS id, 'a' AS tenant; ALTER TABLE kid INHERIT parent`,
	"SELECT INTO, ALTER TABLE":      `SELECT 1 AS id, 'a' AS tenant INTO kid; ALTER TABLE kid INHERIT parent`,
	"CREATE SCHEMA, with a child":   `CREATE SCHEMA s2 CREATE TABLE kid () INHERITS (public.parent)`,
	"CREATE SCHEMA, with a leaf":    `CREATE SCHEMA s2 CREATE TABLE kid PARTITION OF public.parted DEFAULT`,
	"CREATE TABLE in a function":    `DO $$ BEGIN EXECUTE 'CREATE TABLE kid () INHERITS (parent)'; END $$`,
	"CREATE SCHEMA in a function":   `DO $$ BEGIN EXECUTE 'CREATE SCHEMA s2 CREATE TABLE kid () INHERITS (public.parent)'; END $$`,
	"CREATE TABLE of a parent, too": `CREATE TABLE kid () INHERITS (parent); CREATE TABLE grandchild () INHERITS (kid)`,
}

const guardedPairSQL = `CREATE TABLE parent (id int, tenant text); CREATE TABLE parted (id int, tenant text) PARTITION BY RANGE (id);
	SELECT fencing.guard('parent', 'nightly'), fencing.guard_by('parted', 'tenant')`

func TestOnDDL_guardsWhatBecomesAPartByWhicheverCommand(t *testing.T) {
	t.Parallel()
	for name, ddl := range additions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(t, eventTriggerSQL)
			b.exec(t, guardedPairSQL)
			b.exec(t, ddl)
			requireProblems(t, b)
			for _, sql := range []string{`INSERT INTO kid VALUES (1, 'a')`, `TRUNCATE kid`} {
				_, err := b.pool.Exec(t.Context(), `SET LOCAL search_path = public, s2; `+sql)
				require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped, sql)
			}
			// And all of it can be unguarded, and comes back whole.
			require.NoError(t, fencing.Unguard(t.Context(), b.pool, "parent"))
			require.NoError(t, fencing.Unguard(t.Context(), b.pool, "parted"))
			require.Zero(t, one[int](t, b.observer, triggersSQL))
			require.NoError(t, fencing.Guard(t.Context(), b.pool, "parent", "nightly"))
			require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "parted", "tenant"))
			requireProblems(t, b)
		})
	}
}

// What can't be guarded can't become a part of what is.
func TestOnDDL_refusesPartsThatCantBeGuarded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, eventTriggerSQL)
	b.exec(t, guardedPairSQL)
	b.exec(t, foreignSQL+`; CREATE FOREIGN TABLE f (id int, tenant text) SERVER s; CREATE UNLOGGED TABLE u (id int, tenant text)`)
	for _, ddl := range []string{
		`CREATE FOREIGN TABLE kid () INHERITS (parent) SERVER s`,
		`CREATE FOREIGN TABLE kid PARTITION OF parted DEFAULT SERVER s`,
		`ALTER FOREIGN TABLE f INHERIT parent`,
		`ALTER TABLE f INHERIT parent`,
		`ALTER TABLE parted ATTACH PARTITION f DEFAULT`,
		`CREATE UNLOGGED TABLE kid () INHERITS (parent)`,
		`ALTER TABLE u INHERIT parent`,
	} {
		_, err := b.observer.Exec(t.Context(), ddl)
		requireCode(t, err, "55000")
		require.ErrorContains(t, err, "can't become a part of it", ddl)
	}
	requireProblems(t, b)
	// A session's temporary children are nobody else's.
	b.exec(t, `CREATE TEMP TABLE mine () INHERITS (parent)`)
	requireProblems(t, b)
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "parent", "nightly"))
	require.NoError(t, fencing.Unguard(t.Context(), b.pool, "parent"))
}

// Verify tells whether the event trigger is the one of the documentation.
func TestVerify_findsAnEventTriggerThatDoesNotSeeAll(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const what = `does not see all that adds to a guarded table, or is disabled`
	for _, ddl := range []string{
		`CREATE EVENT TRIGGER "my ""trigger" ON ddl_command_end WHEN TAG IN ('CREATE TABLE', 'ALTER TABLE') EXECUTE FUNCTION fencing.on_ddl()`,
		`CREATE EVENT TRIGGER fencing ON sql_drop EXECUTE FUNCTION fencing.on_ddl()`,
		eventTriggerSQL + `; ALTER EVENT TRIGGER fencing DISABLE`,
		eventTriggerSQL + `; ALTER EVENT TRIGGER fencing ENABLE REPLICA`,
	} {
		b.exec(t, ddl)
		found := problems(t, b.pool, "")
		require.Len(t, found, 1, ddl)
		require.Contains(t, found[0].What, what)
		b.exec(t, found[0].Fix)
		requireProblems(t, b)
		b.exec(t, `DO $$ BEGIN EXECUTE (SELECT format('DROP EVENT TRIGGER %I', evtname) FROM pg_event_trigger); END $$`)
	}
	for _, ddl := range []string{
		eventTriggerSQL, `CREATE EVENT TRIGGER fencing2 ON ddl_command_end EXECUTE FUNCTION fencing.on_ddl()`, `ALTER EVENT TRIGGER fencing ENABLE ALWAYS`,
	} {
		b.exec(t, ddl)
		requireProblems(t, b)
	}
}
