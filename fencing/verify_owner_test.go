package fencing_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// ownersHarms are what the owner of the schema can do to what all guards share.
var ownersHarms = map[string]struct {
	sql, what string
	fixed     bool
}{
	"a check that checks nothing": {sql: `CREATE OR REPLACE FUNCTION fencing.check_statement() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
		SET search_path = pg_catalog, pg_temp AS 'BEGIN RETURN NULL; END'`, what: `the function fencing.check_statement() is not the one that was installed`},
	"another body": {
		sql:  `CREATE OR REPLACE FUNCTION fencing.epoch() RETURNS text LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS 'SELECT ''1'''`,
		what: `the function fencing.epoch() is not the one that was installed`,
	},
	"another volatility": {sql: `ALTER FUNCTION fencing.check_values(text[], text, text, text, name, name) IMMUTABLE`, what: `the function fencing.check_values(text[],text,text,text,name,name) is not the one`},
	"a function that is called in place of another": {
		sql:  `CREATE FUNCTION fencing.guard(text, text) RETURNS void LANGUAGE sql AS ''`,
		what: `the function fencing.guard(text,text) does not belong to fencing, and may be called in place of one that does`,
	},
	"a function that is gone":    {sql: `DROP FUNCTION fencing.stamp(text, bigint, interval)`, what: `the function fencing.stamp(text,bigint,interval) is missing`},
	"settings of the report":     {sql: `ALTER FUNCTION fencing.family(regclass) SET search_path = public`, what: `the function fencing.family(regclass) lost its settings`, fixed: true},
	"a setting more":             {sql: `ALTER FUNCTION fencing.unguard(regclass) SET work_mem = '1MB'`, what: `the function fencing.unguard(regclass) lost its settings`, fixed: true},
	"rights of the stamps":       {sql: `ALTER FUNCTION fencing.stamp_row() SECURITY DEFINER`, what: `the function fencing.stamp_row() lost its settings`, fixed: true},
	"row security of the guards": {sql: `ALTER TABLE fencing.guarded ENABLE ROW LEVEL SECURITY`, what: `the table fencing.guarded has triggers, rules or row security`, fixed: true},
	"rule of the origin":         {sql: `CREATE RULE x AS ON UPDATE TO fencing.origin DO INSTEAD NOTHING`, what: `the table fencing.origin has triggers, rules or row security`, fixed: true},
	"all at once on the marks": {
		sql: `ALTER TABLE fencing.resource FORCE ROW LEVEL SECURITY; CREATE RULE "a;b" AS ON UPDATE TO fencing.resource DO INSTEAD NOTHING;
			CREATE TRIGGER "c;d" BEFORE UPDATE ON fencing.resource FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`,
		what: marksProblem, fixed: true,
	},
	"unlogged guards": {sql: `ALTER TABLE fencing.guarded SET UNLOGGED`, what: `the table fencing.guarded is not logged: a crash empties it`, fixed: true},
	"a key":           {sql: `ALTER TABLE fencing.guarded DROP CONSTRAINT guarded_pkey`, what: `the table fencing.guarded has other columns or constraints`},
	"a check":         {sql: `ALTER TABLE fencing.guarded DROP CONSTRAINT guarded_check`, what: `the table fencing.guarded has other columns or constraints`},
	"a column":        {sql: `ALTER TABLE fencing.resource ALTER name TYPE varchar(10)`, what: `the table fencing.resource has other columns or constraints`},
}

func TestVerify_findsWhatTheOwnerOfTheSchemaChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn := b.db.Conn(t)
	for name, h := range ownersHarms {
		require.NoError(t, errRollback(t, conn, func(tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), h.sql)
			require.NoError(t, err, name)
			found := problems(t, tx, "")
			require.NotEmpty(t, found, name)
			require.Contains(t, found[0].What, h.what, "%s: %+v", name, found)
			require.Equal(t, h.fixed, found[0].Fix != "", name)
			if h.fixed {
				require.Len(t, found, 1, name)
				_, err = tx.Exec(t.Context(), found[0].Fix)
				require.NoError(t, err, name)
				require.Empty(t, problems(t, tx, ""), name)
			}
		}))
	}
}

// Also by way of another name, and where the table was guarded in a session that
// quotes all names.
func TestVerify_findsATableThatWasDroppedAndMadeAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	quoting := b.db.Pool(t, with("quote_all_identifiers", "on"))
	for n, guard := range []func(string) error{
		func(table string) error { return fencing.Guard(t.Context(), b.pool, table, "nightly") },
		func(table string) error { return fencing.Guard(t.Context(), quoting, table, "nightly") },
	} {
		for m, ddl := range []string{
			`DROP TABLE %[1]s; CREATE TABLE %[1]s (id int)`,
			`ALTER TABLE %[1]s RENAME TO "new %[2]s"; DROP TABLE "new %[2]s"; CREATE TABLE "new %[2]s" (id int)`,
			`ALTER TABLE %[1]s RENAME TO "new %[2]s"; SELECT fencing.guard('"new %[2]s"', 'nightly'); DROP TABLE "new %[2]s"; CREATE TABLE "new %[2]s" (id int)`,
			`ALTER TABLE %[1]s SET SCHEMA elsewhere; DROP TABLE elsewhere.%[1]s; CREATE TABLE elsewhere.%[1]s (id int)`,
		} {
			b.exec(t, `CREATE SCHEMA IF NOT EXISTS elsewhere`)
			plain := fmt.Sprintf("t%d_%d", n, m)
			table := ident(plain)
			b.exec(t, fmt.Sprintf(`CREATE TABLE %s (id int)`, table))
			require.NoError(t, guard(table))
			requireProblems(t, b)
			b.exec(t, fmt.Sprintf(ddl, table, plain))
			for _, db := range []fencing.Querier{b.pool, quoting} {
				report, err := fencing.Verify(t.Context(), db)
				require.NoError(t, err)
				found := allProblems(report)
				require.Len(t, found, 1, "%s: %+v", ddl, found)
				require.Regexp(t, `^(is another table than the one that was guarded under this name|was guarded under this name and is no more)`, found[0].What)
				if m == 0 || m == 2 {
					require.NotEmpty(t, found[0].Fix, "%s: %s", ddl, found[0].What)
				}
			}
			for _, p := range allProblems(verified(t, b)) {
				if p.Fix != "" {
					b.exec(t, p.Fix)
				}
			}
			b.exec(t, `DELETE FROM fencing.guarded g WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = g.target)`)
			requireProblems(t, b)
		}
	}
}

func verified(t *testing.T, b *bundle) *fencing.Report {
	t.Helper()
	report, err := fencing.Verify(t.Context(), b.pool)
	require.NoError(t, err)
	return report
}

// The tokens in the rows are those of their writers, if no trigger changes them.
func TestVerify_findsATriggerThatMayChangeTheTokens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE x (id int, tenant text, fencing_token bigint) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF x DEFAULT;
		CREATE TABLE y (id int); CREATE FUNCTION forge() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN new.fencing_token := 7; RETURN new; END $$`)
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "x", "nightly"))
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "y", "nightly"))
	for _, ddl := range []string{
		`CREATE TRIGGER zzz BEFORE INSERT ON x FOR EACH ROW EXECUTE FUNCTION forge()`,
		`CREATE TRIGGER zzz BEFORE UPDATE OF id ON part FOR EACH ROW EXECUTE FUNCTION forge()`,
	} {
		b.exec(t, ddl)
		found := problems(t, b.pool, "public.x")
		require.Len(t, found, 1, "%+v", found)
		require.Contains(t, found[0].What, "fires after zz_fencing_token, and may change the column fencing_token")
		require.Empty(t, found[0].Fix)
		require.NoError(t, fencing.Guard(t.Context(), b.pool, "x", "nightly"))
		b.exec(t, `DROP TRIGGER IF EXISTS zzz ON x; DROP TRIGGER IF EXISTS zzz ON part`)
	}
	b.exec(t, `CREATE TRIGGER early BEFORE INSERT OR UPDATE ON x FOR EACH ROW EXECUTE FUNCTION forge();
		CREATE TRIGGER zzz AFTER INSERT ON x FOR EACH ROW EXECUTE FUNCTION forge(); CREATE TRIGGER zzz BEFORE DELETE ON y FOR EACH ROW EXECUTE FUNCTION forge();
		CREATE TRIGGER zzy BEFORE INSERT ON y FOR EACH ROW EXECUTE FUNCTION forge()`)
	requireProblems(t, b)
	b.exec(t, `DROP TRIGGER early ON x; ALTER TABLE y ADD fencing_token text`)
	found := problems(t, b.pool, "public.y")
	require.Len(t, found, 1)
	require.Contains(t, found[0].What, "the column fencing_token of public.y is not a bigint")
}

// A restore of the schema alone has no record of the guards. Verify's fixes don't
// take them away.
func TestVerify_fixesRecordGuardsThatAreNotRecorded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, dumpedSQL)
	triggers := one[string](t, b.observer, allTriggersSQL)
	guards := b.contents(t, `(SELECT target, name, resource, by_column, prefix FROM fencing.guarded)`)
	b.exec(t, `DELETE FROM fencing.guarded`)
	for _, p := range allProblems(verified(t, b)) {
		require.Contains(t, p.What, "has triggers of a guard that is not recorded")
		if p.Fix != "" {
			b.exec(t, p.Fix)
		}
	}
	requireProblems(t, b)
	require.Equal(t, guards, b.contents(t, `(SELECT target, name, resource, by_column, prefix FROM fencing.guarded)`))
	require.Equal(t, triggers, one[string](t, b.observer, allTriggersSQL))
}

const allTriggersSQL = `SELECT string_agg(tgrelid::regclass || ' ' || tgname || tgenabled::text || encode(tgargs, 'hex'), ', ' ORDER BY tgrelid, tgname) FROM pg_trigger`
