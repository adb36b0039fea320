package fencing_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// oddNames become another statement where they are not quoted, or where a comment
// has them and they end it.
var oddNames = []string{
	"a\nCREATE TABLE public.fired();--", "b\r\n; CREATE TABLE public.fired(); --", `c"; CREATE TABLE public.fired(); --`, `d'; CREATE TABLE public.fired(); --`,
	`-- e`, `/* f`, `\! touch g`, "h\n\\! touch fired", `$$ i`, `%s %I %L`, `E'\'; CREATE TABLE public.fired(); --`, "j\u2028CREATE TABLE public.fired();",
}

func ident(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// oddHarms are what can happen to $table, which is guarded by its column $column,
// and to $child, a child of it. $odd is the name of anything else.
var oddHarms = []string{
	`ALTER TABLE $table DISABLE TRIGGER USER`,
	`DROP TRIGGER fencing_guard_insert ON $table; CREATE FUNCTION $odd() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER fencing_guard_insert AFTER INSERT ON $table EXECUTE FUNCTION $odd()`,
	`ALTER TRIGGER fencing_guard_insert ON $child RENAME TO $odd`,
	`CREATE TABLE $odd () INHERITS ($table)`,
	`ALTER TABLE $child SET UNLOGGED`,
	`ALTER TABLE $child NO INHERIT $table`,
	`CREATE TABLE $odd ($column text); ALTER TABLE $child INHERIT $odd`,
	`ALTER TABLE $table RENAME $column TO $odd`,
	`ALTER TABLE $table ALTER $column TYPE date USING NULL`,
	`CREATE SCHEMA odd; CREATE FOREIGN DATA WRAPPER odd; CREATE SERVER odd FOREIGN DATA WRAPPER odd; CREATE FOREIGN TABLE $odd () INHERITS ($table) SERVER odd`,
	`DROP TABLE $table CASCADE; CREATE TABLE $table ($column text)`,
	`ALTER TABLE $table RENAME TO $odd; CREATE TABLE $table ($column text)`,
	`DROP TABLE $table CASCADE`,
	`CREATE FUNCTION $odd() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN new; END'; ALTER TABLE $table ADD fencing_token bigint; ` +
		`CREATE TRIGGER $odd BEFORE INSERT ON $table FOR EACH ROW EXECUTE FUNCTION $odd(); CREATE TRIGGER zzzz BEFORE INSERT ON $table FOR EACH ROW EXECUTE FUNCTION $odd()`,
	`DELETE FROM fencing.guarded`,
	`CREATE RULE $odd AS ON UPDATE TO fencing.resource DO ALSO NOTHING; CREATE TRIGGER $odd BEFORE UPDATE ON fencing.guarded EXECUTE FUNCTION suppress_redundant_updates_trigger()`,
	`CREATE FUNCTION fencing.$odd() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE TABLE fencing.$odd (); ALTER SEQUENCE fencing.token OWNED BY NONE`,
	`CREATE EVENT TRIGGER $odd ON ddl_command_end WHEN TAG IN ('CREATE VIEW') EXECUTE FUNCTION fencing.on_ddl()`,
	`CREATE TABLE fencing.$odd ($odd bigint); GRANT ALL ON fencing.$odd, fencing.resource TO $role WITH GRANT OPTION; GRANT ALL ($odd) ON fencing.$odd TO $role;
		GRANT ALL (mark) ON fencing.resource TO $role; GRANT CREATE ON SCHEMA fencing TO $role`,
	`ALTER FUNCTION fencing.verify() OWNER TO $role; ALTER TABLE fencing.guarded OWNER TO $role; GRANT EXECUTE ON FUNCTION fencing.rebase() TO $role`,
}

// Whatever a table, a column, a role, a trigger or a resource is called, the fixes
// mend what they are for and do nothing else, and a second run of them has nothing
// left to do. What is no fix is NULL.
func TestVerify_fixesRunAsTheyStandWhateverNamesAreLike(t *testing.T) {
	t.Parallel()
	b := setup(t)
	plain := b.role(t)
	role := ident(plain + "\nCREATE TABLE public.fired();--")
	b.exec(t, `ALTER ROLE `+plain+` RENAME TO `+role)
	defer b.exec(t, `ALTER ROLE `+role+` RENAME TO `+plain)
	conn := b.db.Conn(t)
	for n, harm := range oddHarms {
		for _, name := range []string{"-\n\"'; CREATE TABLE public.fired(); --$$ \\", oddNames[n%len(oddNames)]} {
			other := oddNames[(n+1)%len(oddNames)]
			table, column, child := ident(name), ident(other), ident(name+"2")
			_, err := conn.Exec(t.Context(), fmt.Sprintf(`BEGIN; CREATE TABLE %[1]s (%[2]s text); CREATE TABLE %[3]s () INHERITS (%[1]s)`, table, column, child))
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), `SELECT fencing.guard_by($1::text::regclass, $2::text::name, $3)`, table, other, name)
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), strings.NewReplacer("$table", table, "$column", column, "$child", child, "$odd", ident(name+"3"), "$role", role).Replace(harm))
			require.NoError(t, err, harm)

			fixes := []string{"once"}
			for range 2 {
				fixes = nil
				report, err := fencing.Verify(t.Context(), conn)
				require.NoError(t, err)
				for _, p := range allProblems(report) {
					require.NotRegexp(t, `(?s)[\x00-\x1f\x7f]`, p.What)
					if p.Fix != "" {
						fixes = append(fixes, p.Fix)
					}
				}
				for _, fix := range fixes {
					_, err := conn.Exec(t.Context(), fix)
					require.NoError(t, err, "%s: %s", harm, fix)
				}
			}
			require.Empty(t, fixes, "%q: %s", name, harm)
			var fired bool
			require.NoError(t, conn.QueryRow(t.Context(), `SELECT to_regclass('public.fired') IS NOT NULL`).Scan(&fired))
			require.False(t, fired, "%q: %s", name, harm)
			_, err = conn.Exec(t.Context(), `ROLLBACK`)
			require.NoError(t, err)
		}
	}
}

func allProblems(report *fencing.Report) (all []fencing.Problem) {
	all = append(all, report.Problems...)
	for _, table := range report.Tables {
		all = append(all, table.Problems...)
	}
	return all
}

// The command of the documentation, by psql.
func TestVerify_fixesRunByPsql(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tools := b.db.Tools(t, "psql")
	for n, name := range oddNames {
		b.exec(t, fmt.Sprintf(`CREATE TABLE %s (tenant text)`, ident(name)))
		b.exec(t, `SELECT fencing.guard_by($1::text::regclass, 'tenant', $2)`, ident(name), fmt.Sprint(n))
		b.exec(t, fmt.Sprintf(`ALTER TABLE %s DISABLE TRIGGER USER`, ident(name)))
	}
	b.exec(t, `CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w`)
	b.exec(t, fmt.Sprintf(`CREATE TABLE parent (id int); SELECT fencing.guard('parent', 'nightly'); CREATE FOREIGN TABLE %s () INHERITS (parent) SERVER s`, ident(oddNames[0]+"f")))
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", strings.ReplaceAll(commands(t, "The rows alone", 1), "pg_dump", "true"))
	cmd.Dir = t.TempDir()
	require.NoError(t, os.WriteFile(cmd.Dir+"/rows.sql", nil, 0o600))
	cmd.Env = append(os.Environ(), "PATH="+tools+string(os.PathListSeparator)+os.Getenv("PATH"), "ORIGINAL=", "COPY="+b.db.DSN, "PGOPTIONS=")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	report, err := fencing.Verify(t.Context(), b.pool)
	require.NoError(t, err)
	all := allProblems(report)
	require.Len(t, all, 1, "%+v", all)
	require.Contains(t, all[0].What, "is a foreign table")
	require.False(t, one[bool](t, b.observer, `SELECT to_regclass('public.fired') IS NOT NULL`))
	entries, err := os.ReadDir(cmd.Dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}

// Statements that a HINT names are those of the names in it, too.
func TestGuard_hintsRunAsTheyStand(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, name := range oddNames {
		table := ident(name)
		b.exec(t, fmt.Sprintf(`CREATE TABLE %s (tenant text)`, table))
		b.exec(t, `SELECT fencing.guard($1::text::regclass, $2)`, table, name)
		_, err := b.observer.Exec(t.Context(), `SELECT fencing.guard($1::text::regclass, 'another')`, table)
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr)
		_, hint, found := strings.Cut(pgErr.Hint, ": ")
		require.True(t, found, pgErr.Hint)
		b.exec(t, strings.TrimSuffix(hint, "."))
		require.Zero(t, one[int](t, b.observer, `SELECT count(*) FROM fencing.guarded`))
		require.False(t, one[bool](t, b.observer, `SELECT to_regclass('public.fired') IS NOT NULL`))
	}
}
