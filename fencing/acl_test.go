package fencing_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// grants are what Verify has to find, with the role %[1]s, and how it begins to say it.
var grants = map[string]struct{ sql, what string }{
	"function to everybody": {`GRANT EXECUTE ON FUNCTION fencing.issue(text) TO PUBLIC`, `PUBLIC has EXECUTE on the function fencing.issue(text)`},
	"function to a role":    {`GRANT EXECUTE ON FUNCTION fencing.rebase() TO %[1]s`, `%[1]s has EXECUTE on the function fencing.rebase()`},
	"grant option": {
		`GRANT EXECUTE ON FUNCTION fencing.stamp(text, bigint, interval) TO %[1]s WITH GRANT OPTION`,
		`%[1]s may grant others EXECUTE on the function fencing.stamp(text,bigint,interval)`,
	},
	"function from everybody": {`REVOKE EXECUTE ON FUNCTION fencing.verify() FROM PUBLIC`, `PUBLIC lacks EXECUTE on the function fencing.verify()`},
	"function from its owner": {
		`REVOKE ALL ON FUNCTION fencing.check_write(text, text, name, name) FROM CURRENT_USER`,
		`{owner}, who owns the function fencing.check_write(text,text,name,name), lacks EXECUTE on it`,
	},
	"table":             {`GRANT UPDATE, DELETE ON fencing.resource TO %[1]s`, `%[1]s has DELETE, UPDATE on the table fencing.resource`},
	"table of guards":   {`GRANT INSERT ON fencing.guarded TO PUBLIC`, `PUBLIC has INSERT on the table fencing.guarded`},
	"table of versions": {`GRANT INSERT ON fencing.migration TO %[1]s`, `%[1]s has INSERT on the table fencing.migration`},
	"table from all":    {`REVOKE SELECT ON fencing.origin FROM PUBLIC`, `PUBLIC lacks SELECT on the table fencing.origin`},
	"table from its owner": {
		`REVOKE INSERT, UPDATE ON fencing.resource FROM CURRENT_USER`, `{owner}, who owns the table fencing.resource, lacks INSERT, UPDATE on it`,
	},
	"column":             {`GRANT UPDATE (mark) ON fencing.resource TO %[1]s`, `%[1]s has UPDATE on the table fencing.resource (mark)`},
	"column to all":      {`GRANT INSERT (name, mark) ON fencing.resource TO PUBLIC`, `PUBLIC has INSERT on the table fencing.resource (`},
	"sequence":           {`GRANT USAGE ON SEQUENCE fencing.token TO %[1]s`, `%[1]s has USAGE on the sequence fencing.token`},
	"schema":             {`GRANT CREATE ON SCHEMA fencing TO %[1]s`, `%[1]s has CREATE on the schema fencing`},
	"schema to all":      {`GRANT USAGE ON SCHEMA fencing TO PUBLIC`, `PUBLIC has USAGE on the schema fencing`},
	"owner of a table":   {`ALTER TABLE fencing.guarded OWNER TO %[1]s`, `the table fencing.guarded has another owner than the schema`},
	"owner of a counter": {`ALTER SEQUENCE fencing.token OWNER TO %[1]s`, `the sequence fencing.token has another owner than the schema`},
	"passed on": {
		`GRANT UPDATE ON fencing.resource TO %[1]s WITH GRANT OPTION; SET ROLE %[1]s; GRANT UPDATE ON fencing.resource TO %[2]s; RESET ROLE`,
		`%[1]s has UPDATE on the table fencing.resource`,
	},
}

func TestVerify_findsPrivilegesAndOwners(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, role, other := b.db.Conn(t), b.role(t), b.role(t)
	owner := one[string](t, conn, `SELECT nspowner::regrole::text FROM pg_namespace WHERE nspname = 'fencing'`)
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role) // is no problem, nor is who may read all
	b.exec(t, fmt.Sprintf(`GRANT SELECT ON ALL TABLES IN SCHEMA fencing TO %[1]s; GRANT SELECT ON SEQUENCE fencing.token TO %[1]s;
		GRANT USAGE ON SCHEMA fencing TO %[2]s`, role, other))
	requireProblems(t, b)
	before := one[string](t, conn, aclSQL)
	for name, g := range grants {
		require.NoError(t, errRollback(t, conn, func(tx pgx.Tx) {
			_, err := tx.Exec(t.Context(), strings.ReplaceAll(strings.ReplaceAll(g.sql, "%[1]s", role), "%[2]s", other))
			require.NoError(t, err, name)
			found := problems(t, tx, "")
			require.NotEmpty(t, found, name)
			for _, p := range found {
				require.Contains(t, p.What, strings.ReplaceAll(strings.ReplaceAll(g.what, "%[1]s", role), "{owner}", owner), name)
			}
			for _, p := range found {
				_, err = tx.Exec(t.Context(), p.Fix)
				require.NoError(t, err, "%s: %s", name, p.Fix)
			}
			require.Empty(t, problems(t, tx, ""), name)
			if !strings.HasPrefix(name, "owner") { // of which the grants go with it
				require.Equal(t, before, one[string](t, tx, aclSQL), name)
			}
		}))
	}
}

// aclSQL is who may do what in the schema.
const aclSQL = `SELECT string_agg(o.name || ' ' || e::text, ', ' ORDER BY o.name, e::text) FROM fencing.objects() o, aclexplode(o.acl) e`

const othersSQL = ` WHERE e.grantee <> o.owner AND o.is_known`

// Whatever a role gives away of what it will create, the installation does not.
func TestUp_givesNothingAwayByDefaultPrivileges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fresh := one[string](t, b.observer, aclSQL+othersSQL)
	require.NoError(t, migrations.Down(t.Context(), b.pool))
	role := b.role(t)
	// A schema in which others may create something is refused.
	b.exec(t, fmt.Sprintf(`ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO PUBLIC; ALTER DEFAULT PRIVILEGES GRANT USAGE ON SCHEMAS TO %s WITH GRANT OPTION`, role))
	for _, kind := range []string{"TABLES", "SEQUENCES", "FUNCTIONS"} {
		b.exec(t, fmt.Sprintf(`ALTER DEFAULT PRIVILEGES GRANT ALL ON %s TO %s WITH GRANT OPTION; ALTER DEFAULT PRIVILEGES GRANT ALL ON %[1]s TO PUBLIC;
			ALTER DEFAULT PRIVILEGES REVOKE ALL ON %[1]s FROM CURRENT_USER`, kind, role))
	}
	b.exec(t, `ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC`)
	require.NoError(t, migrations.Up(t.Context(), b.pool))
	requireProblems(t, b)
	// The owner has what it needs, with which the tests of the schema's work pass.
	b.guarded(t, "exports", "nightly")
	app := b.role(t)
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, app)
	b.exec(t, `GRANT ALL ON exports TO `+app)
	pool := b.as(t, app)
	lease := b.lock(t, newFencer(t, pool, nil, nil), "nightly")
	require.NoError(t, lease.InTx(t.Context(), pool, write(t.Context(), "exports", 3)))
	_, err := fencing.Verify(t.Context(), pool)
	require.NoError(t, err)
	for _, sql := range []string{`UPDATE fencing.resource SET mark = 1`, `SELECT nextval('fencing.token')`, `SELECT fencing.issue('x')`, `CREATE TABLE fencing.t ()`, `DELETE FROM fencing.guarded`} {
		_, err := b.as(t, role).Exec(t.Context(), sql)
		requireCode(t, err, "42501")
	}
	b.exec(t, `SELECT fencing.revoke_from($1::text::regrole)`, app)
	require.NotContains(t, one[string](t, b.observer, aclSQL), app)
	require.Equal(t, fresh, one[string](t, b.observer, aclSQL+othersSQL))
}

// A restore that left the privileges out: everybody may call every function, and
// nobody read a table. Verify tells, its fixes bring all of it back, and in between
// a grant gives all that a role needs.
func TestDump_withoutPrivileges(t *testing.T) {
	t.Parallel()
	p := dumpable(t)
	before := one[string](t, p.original.observer, aclSQL)
	p.shell(t, `pg_dump --format=custom --no-owner --file=shop.dump "$ORIGINAL"; pg_restore --no-acl --no-owner --exit-on-error --dbname="$COPY" shop.dump`)
	p.copy.exec(t, `SELECT fencing.rebase()`)
	role := p.copy.role(t)
	p.copy.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	pool := p.copy.as(t, role)
	report, err := fencing.Verify(t.Context(), pool)
	require.NoError(t, err)
	require.Len(t, report.Problems, 17, "%+v", report.Problems) // thirteen functions, three tables and the sequence
	lease := p.copy.lock(t, newFencer(t, pool, nil, nil), "nightly")
	require.Positive(t, lease.Token())

	for _, problem := range report.Problems {
		p.copy.exec(t, problem.Fix)
	}
	requireProblems(t, p.copy)
	require.Positive(t, one[int](t, pool, `SELECT count(*) FROM fencing.resource, fencing.guarded, fencing.origin`))
	p.copy.exec(t, `SELECT fencing.revoke_from($1::text::regrole)`, role)
	require.Equal(t, before, one[string](t, p.copy.observer, aclSQL))
}
