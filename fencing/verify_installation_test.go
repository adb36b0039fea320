package fencing_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// installationHarms are what can happen to the tables and functions that all
// guards share.
var installationHarms = map[string]struct {
	sql, what string
	since     int
}{
	"increment":         {sql: `ALTER SEQUENCE fencing.token INCREMENT 2`, what: sequenceProblem},
	"backwards":         {sql: `ALTER SEQUENCE fencing.token INCREMENT -1`, what: sequenceProblem},
	"cache":             {sql: `ALTER SEQUENCE fencing.token CACHE 10`, what: sequenceProblem},
	"cycle":             {sql: `ALTER SEQUENCE fencing.token CYCLE`, what: sequenceProblem},
	"no maximum":        {sql: `ALTER SEQUENCE fencing.token NO MAXVALUE`, what: sequenceProblem},
	"negative":          {sql: `ALTER SEQUENCE fencing.token MINVALUE -5`, what: sequenceProblem},
	"unlogged sequence": {sql: `ALTER SEQUENCE fencing.token SET UNLOGGED`, what: "the sequence fencing.token is not logged: a crash sets it back", since: 150000},
	"owned sequence": {
		sql:  `CREATE TABLE fencing.t (id bigint DEFAULT nextval('fencing.token')); ALTER SEQUENCE fencing.token OWNED BY fencing.t.id`,
		what: "the sequence fencing.token belongs to fencing.t: RESTART IDENTITY reaches it",
	},
	"unlogged marks": {sql: `ALTER TABLE fencing.resource SET UNLOGGED`, what: "the table fencing.resource is not logged: a crash forgets the marks"},
	"trigger on the marks": {
		sql:  `CREATE TRIGGER x BEFORE UPDATE ON fencing.resource FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`,
		what: marksProblem,
	},
	"rule on the marks": {
		sql: `CREATE RULE x AS ON UPDATE TO fencing.resource DO INSTEAD NOTHING`, what: marksProblem,
	},
	"row security of the marks": {
		sql: `ALTER TABLE fencing.resource ENABLE ROW LEVEL SECURITY`, what: marksProblem,
	},
	"marks of another database": {
		sql:  `INSERT INTO fencing.resource (name, mark, epoch) VALUES ('x', 7, fencing.epoch())`,
		what: "the table fencing.resource has marks that fencing.issue did not set here",
	},
	"marks of another database, after a rebase": {
		sql:  `SELECT fencing.rebase(); INSERT INTO fencing.resource (name, mark, epoch) VALUES ('x', 7, fencing.epoch())`,
		what: "the table fencing.resource has marks that fencing.issue did not set here",
	},
	"several marks": {
		sql:  `INSERT INTO fencing.resource (name, mark) VALUES ('x', 7), ('x', 8)`,
		what: "the table fencing.resource has several marks of one resource, of which only the highest should be",
	},
	"durability":                 {sql: `DROP TRIGGER make_durable ON fencing.resource`, what: durabilityProblem},
	"durability in replica mode": {sql: `ALTER TABLE fencing.resource ENABLE TRIGGER make_durable`, what: durabilityProblem},
	"settings of a function":     {sql: `ALTER FUNCTION fencing.check_statement() RESET ALL`, what: "the function fencing.check_statement() lost its settings"},
	"search path":                {sql: `ALTER FUNCTION fencing.stamp_row() SET search_path = public`, what: "the function fencing.stamp_row() lost its settings"},
	"rights of a function":       {sql: `ALTER FUNCTION fencing.check_row() SECURITY INVOKER`, what: "the function fencing.check_row() lost its settings"},
	"limit of a function":        {sql: `ALTER FUNCTION fencing.issue(text) RESET lock_timeout`, what: "the function fencing.issue(text) lost its settings"},
	"rights of the record":       {sql: `ALTER FUNCTION fencing.record(regclass, text, name, text, boolean) SECURITY INVOKER`, what: "the function fencing.record(regclass,text,name,text,boolean) lost its settings"},
	"owner of a function":        {sql: `ALTER FUNCTION fencing.check_statement() OWNER TO %s`, what: "the function fencing.check_statement() has another owner than the schema"},
	"owner of the check":         {sql: `ALTER FUNCTION fencing.check_write(text, text, name, name) OWNER TO %s`, what: "the function fencing.check_write(text,text,name,name) has another owner than the schema"},
	"copy of another server":     {sql: `UPDATE fencing.origin SET system_identifier = 1`, what: copyProblem},
	"copy of another database":   {sql: `UPDATE fencing.origin SET database = 1`, what: copyProblem},
}

const (
	sequenceProblem   = "the sequence fencing.token does not count one by one, or cycles, or counts too far"
	durabilityProblem = "the trigger make_durable of fencing.resource is not as it was made: a crash can forget a token that somebody has"
	marksProblem      = "the table fencing.resource has triggers, rules or row security: they can change or hide marks"
)

func TestVerify_findsWhatHappenedToTheInstallation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, role := b.db.Conn(t), b.role(t)
	for _, name := range slices.Sorted(maps.Keys(installationHarms)) {
		h := installationHarms[name]
		if b.db.Server.Version() < h.since {
			t.Logf("%s: not applicable: the server is older", name)
			continue
		}
		require.NoError(t, errRollback(t, conn, func(tx pgx.Tx) {
			if name[:5] == "owner" && h.sql[len(h.sql)-2:] == "%s" {
				h.sql = fmt.Sprintf(h.sql, role)
			}
			_, err := tx.Exec(t.Context(), h.sql)
			require.NoError(t, err, name)
			requireFound(t, tx, "", []string{h.what})
			t.Logf("%s: %s", name, problems(t, tx, "")[0].Fix)
			_, err = tx.Exec(t.Context(), trimAdvice(problems(t, tx, "")[0].Fix))
			require.NoError(t, err, name)
			report, err := fencing.Verify(t.Context(), tx)
			require.NoError(t, err)
			require.Equal(t, &fencing.Report{}, report, name)
			require.True(t, report.OK())
			// And tokens are still issued.
			require.Positive(t, one[int64](t, tx, issueWithLockSQL, "nightly"))
		}))
	}
}

// trimAdvice takes what has to come first off a fix.
func trimAdvice(fix string) string {
	const first = "-- once nothing uses the original any more: "
	if len(fix) > len(first) && fix[:len(first)] == first {
		return fix[len(first):]
	}
	return fix
}

// The report says how each guard is, for every role that may lock.
func TestVerify_canBeCalledByWhoeverMayLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role := b.role(t)
	pool := b.as(t, role)
	_, err := fencing.Verify(t.Context(), pool)
	requireCode(t, err, "42501")
	require.ErrorContains(t, err, "fencing: verify: ")
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	report, err := fencing.Verify(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, &fencing.Report{}, report)
	require.True(t, report.OK())

	b.exec(t, `CREATE SCHEMA hidden; CREATE TABLE hidden."the orders" (tenant text); CREATE TABLE exports (id int)`)
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "exports", "nightly"))
	require.NoError(t, fencing.GuardByPrefix(t.Context(), b.pool, `hidden."the orders"`, "tenant", "tenant/"))
	b.exec(t, `ALTER TABLE hidden."the orders" DISABLE TRIGGER fencing_guard_insert`)
	report, err = fencing.Verify(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, &fencing.Report{Tables: []fencing.TableReport{
		{
			Table: `hidden."the orders"`, Column: "tenant", Prefix: "tenant/",
			Problems: []fencing.Problem{{
				What: `trigger fencing_guard_insert of hidden."the orders" is disabled`,
				Fix:  `SELECT fencing.guard_by('hidden."the orders"', 'tenant', 'tenant/')`,
			}},
		},
		{Table: "public.exports", Resource: "nightly"},
	}}, report)
	require.False(t, report.OK())
	require.NoError(t, fencing.Unguard(t.Context(), b.pool, `hidden."the orders"`))
	require.NoError(t, fencing.Unguard(t.Context(), b.pool, `exports`))
	report, err = fencing.Verify(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, &fencing.Report{}, report)
}

func TestVerify_saysThatNothingIsInstalled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `DROP SCHEMA fencing CASCADE`)
	report, err := fencing.Verify(t.Context(), b.pool)
	require.ErrorIs(t, err, fencing.ErrNotInstalled)
	require.Nil(t, report)
}
