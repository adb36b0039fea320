package fencing_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// harm is what can happen to a guard, and what Verify says of it.
type harm struct {
	ddl      string // makes the table x, which is guarded for nightly, unless it says by itself
	sql      string
	what     []string // in order
	fixed    bool     // by running the fixes; else there are none, and somebody has to decide
	table    string   // which the problem is of, else public.x
	byTenant bool     // guarded by its column tenant
}

const (
	plainSQL    = `CREATE TABLE x (id int, tenant text)`
	familySQL   = `CREATE TABLE x (id int, tenant text) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF x DEFAULT`
	inheritXSQL = `CREATE TABLE x (id int, tenant text); CREATE TABLE part () INHERITS (x)`
	stampedXSQL = `CREATE TABLE x (id int, tenant text, fencing_token bigint)`
)

var harms = map[string]harm{
	"trigger disabled": {
		ddl: plainSQL, sql: `ALTER TABLE x DISABLE TRIGGER fencing_guard`,
		what: []string{"trigger fencing_guard of public.x is disabled"}, fixed: true,
	},
	"all triggers disabled": {
		ddl: stampedXSQL, sql: `ALTER TABLE x DISABLE TRIGGER ALL`,
		what: []string{
			"trigger fencing_guard of public.x is disabled", "trigger fencing_unguard_first of public.x is disabled",
			"trigger zz_fencing_token of public.x is disabled",
		}, fixed: true,
	},
	"trigger of a partition disabled": {
		ddl: familySQL, sql: `ALTER TABLE part DISABLE TRIGGER USER`,
		what: []string{"trigger fencing_guard of public.part is disabled"}, fixed: true,
	},
	"all triggers enabled": {
		ddl: familySQL, sql: `ALTER TABLE part ENABLE TRIGGER ALL`,
		what: []string{
			"trigger fencing_guard of public.part does not fire where session_replication_role is replica",
			"trigger fencing_guard_row of public.part checks each row a second time",
		}, fixed: true,
	},
	"trigger for replicas only": {
		ddl: plainSQL, sql: `ALTER TABLE x ENABLE REPLICA TRIGGER fencing_guard`,
		what: []string{"trigger fencing_guard of public.x fires only where session_replication_role is replica"}, fixed: true,
	},
	"trigger dropped": {
		ddl: plainSQL, sql: `DROP TRIGGER fencing_guard ON x`,
		what: []string{"trigger fencing_guard of public.x is missing"}, fixed: true,
	},
	"triggers by the column dropped": {
		ddl: familySQL, byTenant: true, sql: `DROP TRIGGER fencing_guard_update ON part; DROP TRIGGER fencing_guard_truncate ON part; DROP TRIGGER zz_fencing_move ON x`,
		what: []string{
			"trigger fencing_guard_truncate of public.part is missing", "trigger fencing_guard_update of public.part is missing",
			"trigger zz_fencing_move of public.part is missing", "trigger zz_fencing_move of public.x is missing",
		}, fixed: true,
	},
	"trigger renamed": {
		ddl: plainSQL, sql: `ALTER TRIGGER fencing_guard ON x RENAME TO off`,
		what: []string{"trigger fencing_guard of public.x is missing", "trigger off of public.x does not belong there"}, fixed: true,
	},
	"trigger replaced": {
		ddl: plainSQL, sql: `DROP TRIGGER fencing_guard ON x;
			CREATE TRIGGER fencing_guard BEFORE INSERT ON x FOR EACH STATEMENT EXECUTE FUNCTION fencing.check_statement('nightly');
			ALTER TABLE x ENABLE ALWAYS TRIGGER fencing_guard`,
		what: []string{"trigger fencing_guard of public.x is not the one that belongs there"}, fixed: true,
	},
	"trigger of another function": {
		ddl: plainSQL, sql: `CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
			DROP TRIGGER fencing_guard ON x;
			CREATE TRIGGER fencing_guard BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON x FOR EACH STATEMENT EXECUTE FUNCTION nothing();
			ALTER TABLE x ENABLE ALWAYS TRIGGER fencing_guard`,
		what: []string{"trigger fencing_guard of public.x is not the one that belongs there"}, fixed: true,
	},
	"triggers replaced": {
		ddl: stampedXSQL, byTenant: true, sql: `DROP TRIGGER fencing_guard_insert ON x; DROP TRIGGER zz_fencing_token ON x;
			CREATE TRIGGER fencing_guard_insert BEFORE INSERT ON x FOR EACH STATEMENT EXECUTE FUNCTION fencing.check_statement('nightly');
			CREATE TRIGGER zz_fencing_token BEFORE INSERT ON x FOR EACH ROW EXECUTE FUNCTION fencing.stamp_row('nightly')`,
		what: []string{"trigger fencing_guard_insert of public.x is not the one", "trigger zz_fencing_token of public.x is not the one"}, fixed: true,
	},
	"trigger for another resource": {
		ddl: plainSQL, sql: `DROP TRIGGER fencing_guard ON x;
			CREATE TRIGGER fencing_guard BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON x FOR EACH STATEMENT EXECUTE FUNCTION fencing.check_statement('hourly');
			ALTER TABLE x ENABLE ALWAYS TRIGGER fencing_guard`,
		what: []string{"trigger fencing_guard of public.x is not the one that belongs there"}, fixed: true,
	},
	"later leaf": {
		ddl: `CREATE TABLE x (id int, tenant text) PARTITION BY RANGE (id)`, sql: `CREATE TABLE part PARTITION OF x DEFAULT`,
		what: []string{"public.part was attached later: a TRUNCATE of it is not checked, and its rows are checked one by one"}, fixed: true,
	},
	"later leaf of other keys": {
		ddl: `CREATE TABLE x (id int, tenant text) PARTITION BY RANGE (id)`, byTenant: true,
		sql: `CREATE TABLE part PARTITION OF x DEFAULT PARTITION BY LIST (lower(tenant)); CREATE TABLE below PARTITION OF part DEFAULT`,
		what: []string{
			"public.below was attached later: a TRUNCATE", "public.part was attached later: a TRUNCATE",
			"trigger zz_fencing_move of public.x is not the one that belongs there",
		}, fixed: true,
	},
	"later child": {
		ddl: plainSQL, sql: `CREATE TABLE part () INHERITS (x)`,
		what: []string{"public.part became a child later: what is written to it directly is not checked"}, fixed: true,
	},
	"leaf attached again": {
		ddl: familySQL, sql: `ALTER TABLE x DETACH PARTITION part; ALTER TABLE x ATTACH PARTITION part DEFAULT`,
		what: []string{"trigger fencing_guard_row of public.part checks each row a second time"}, fixed: true,
	},
	"unlogged": {
		ddl: plainSQL, sql: `ALTER TABLE x SET UNLOGGED`,
		what: []string{"public.x is unlogged: a crash empties it, whoever holds the lock"}, fixed: true,
	},
	"foreign partition": {
		ddl: `CREATE TABLE x (id int, tenant text) PARTITION BY RANGE (id); ` + foreignSQL, sql: `CREATE FOREIGN TABLE f (id int, tenant text) SERVER s; ALTER TABLE x ATTACH PARTITION f DEFAULT`,
		byTenant: false, what: []string{"public.f is a foreign table: what is written where it comes from is not checked"},
	},
	"detached partition": {
		ddl: familySQL, sql: `ALTER TABLE x DETACH PARTITION part`, table: "public.part",
		what: []string{"has triggers of a guard that is not recorded: it was detached from a guarded table, or comes from another database"}, fixed: true,
	},
	"child that inherits no more": {
		ddl: inheritXSQL, sql: `ALTER TABLE part NO INHERIT x`, table: "public.part",
		what: []string{"has triggers of a guard that is not recorded"}, fixed: true,
	},
	"attached to another": {
		ddl: familySQL + `; CREATE TABLE y (id int, tenant text) PARTITION BY LIST (tenant)`, sql: `ALTER TABLE y ATTACH PARTITION x DEFAULT`,
		what: []string{"public.x belongs to public.y: what is written by way of it is not checked"},
	},
	"child with another parent": {
		ddl: inheritXSQL + `; CREATE TABLE y (id int, tenant text)`, sql: `ALTER TABLE part INHERIT y`,
		what: []string{"public.part belongs to public.y: what is written by way of it is not checked"},
	},
	"column renamed": {
		ddl: plainSQL, byTenant: true, sql: `ALTER TABLE x RENAME tenant TO customer`,
		what: []string{"public.x has no column tenant: every write is refused"},
	},
	"column dropped": {
		ddl: plainSQL, byTenant: true, sql: `ALTER TABLE x DROP tenant`,
		what: []string{"public.x has no column tenant: every write is refused"},
	},
	"column fencing_token renamed": {
		ddl: stampedXSQL, sql: `ALTER TABLE x RENAME fencing_token TO token`,
		what: []string{"trigger zz_fencing_token of public.x does not belong there"}, fixed: true,
	},
}

func TestVerify_findsWhatHappenedToATable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn := b.db.Conn(t)
	for _, name := range slices.Sorted(maps.Keys(harms)) {
		h := harms[name]
		t.Log(name)
		require.NoError(t, errRollback(t, conn, func(tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), h.ddl)
			require.NoError(t, err, name)
			if h.byTenant {
				require.NoError(t, fencing.GuardBy(t.Context(), tx, "x", "tenant"), name)
			} else {
				require.NoError(t, fencing.Guard(t.Context(), tx, "x", "nightly"), name)
			}
			report, err := fencing.Verify(t.Context(), tx)
			require.NoError(t, err)
			require.True(t, report.OK(), "%s: %+v", name, report)
			require.Len(t, report.Tables, 1)

			_, err = tx.Exec(t.Context(), h.sql)
			require.NoError(t, err, name)
			table := h.table
			if table == "" {
				table = "public.x"
			}
			requireFound(t, tx, table, h.what)
			for _, p := range problems(t, tx, table) {
				require.Equal(t, h.fixed, p.Fix != "", "%s: %+v", name, p)
			}
			if h.fixed {
				fix(t, tx, table)
				report, err = fencing.Verify(t.Context(), tx)
				require.NoError(t, err)
				require.True(t, report.OK(), "%s: %+v", name, report)
			}
		}))
	}
}

func errRollback(t *testing.T, conn *pgx.Conn, fn func(pgx.Tx)) error {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // or nothing else gets at what it locks
	fn(tx)
	return tx.Rollback(t.Context())
}

func requireFound(t *testing.T, db fencing.Querier, table string, what []string) {
	t.Helper()
	found := problems(t, db, table)
	require.Len(t, found, len(what), "%+v", found)
	for i := range what {
		require.True(t, strings.HasPrefix(found[i].What, what[i]), "%q, not %q", found[i].What, what[i])
	}
}

// fix does what the report says.
func fix(t *testing.T, tx pgx.Tx, table string) {
	t.Helper()
	for _, p := range problems(t, tx, table) {
		_, err := tx.Exec(t.Context(), p.Fix)
		require.NoError(t, err, p.Fix)
	}
}

// What somebody has to decide can be done as well.
func TestVerify_isContentAfterWhatItAdvises(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, advice := range map[string]string{
		"foreign partition":           `ALTER TABLE x DETACH PARTITION f`,
		"detached partition":          `SELECT fencing.unguard('part')`,
		"child that inherits no more": `SELECT fencing.unguard('part')`,
		"child with another parent":   `ALTER TABLE part NO INHERIT y`,
		"attached to another":         `SELECT fencing.unguard('x'); SELECT fencing.guard('y', 'nightly')`,
		"column renamed":              `ALTER TABLE x RENAME customer TO tenant`,
		"column dropped":              `SELECT fencing.unguard('x'); SELECT fencing.guard_by('x', 'id')`,
	} {
		h := harms[name]
		require.NoError(t, errRollback(t, b.db.Conn(t), func(tx pgx.Tx) {
			guard := `SELECT fencing.guard('x', 'nightly')`
			if h.byTenant {
				guard = `SELECT fencing.guard_by('x', 'tenant')`
			}
			_, err := tx.Exec(t.Context(), fmt.Sprintf(`%s; %s; %s; %s`, h.ddl, guard, h.sql, advice))
			require.NoError(t, err, name)
			report, err := fencing.Verify(t.Context(), tx)
			require.NoError(t, err)
			require.True(t, report.OK(), "%s: %+v", name, report)
		}))
	}
}
