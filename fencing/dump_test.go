package fencing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/migrations"
)

const page = "../docs/operations.md"

// commands are those of the n-th block below a heading of the page.
func commands(t *testing.T, heading string, n int) string {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n### "+heading+"\n")
	require.True(t, found, heading)
	section, _, _ = strings.Cut(section, "\n##")
	blocks := strings.Split(section, "```sh\n")
	require.Greater(t, len(blocks), n, heading)
	block, _, _ := strings.Cut(blocks[n], "```")
	return block
}

// A pairOfDatabases is what the commands of the page are for.
type pairOfDatabases struct {
	original, copy *bundle
	shell          func(t *testing.T, script string, env ...string) string
}

// dumpable is a database with guards of all kinds and another, which is empty.
func dumpable(t *testing.T) *pairOfDatabases {
	t.Helper()
	db := pgtest.New(t)
	tools := db.Tools(t, "pg_dump", "pg_restore", "psql")
	p := &pairOfDatabases{original: on(t, db), copy: on(t, newDatabase(t, db, `TEMPLATE template0`))}
	p.original.exec(t, dumpedSQL)
	p.write(t, p.original, 1)
	folder := t.TempDir()
	p.shell = func(t *testing.T, script string, env ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-euc", script)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), append(env, "PATH="+tools+string(os.PathListSeparator)+os.Getenv("PATH"),
			"ORIGINAL="+p.original.db.DSN, "COPY="+p.copy.db.DSN, "PGOPTIONS=")...)
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s\n%s", script, out)
		return string(out)
	}
	return p
}

// dumpedSQL has what is hard to dump and restore: a name that needs quotes,
// partitions of partitions, children, and tokens in rows.
const dumpedSQL = `
CREATE SCHEMA "My shop";
CREATE TABLE "My shop"."My exports" (id int PRIMARY KEY, note text);
CREATE TABLE stamped (id int PRIMARY KEY, fencing_token bigint);
CREATE TABLE parted (id int, tenant int) PARTITION BY RANGE (id);
CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
CREATE TABLE parted2 PARTITION OF parted FOR VALUES FROM (100) TO (200) PARTITION BY LIST (tenant);
CREATE TABLE aa_parted PARTITION OF parted2 DEFAULT PARTITION BY LIST (id);
CREATE TABLE a0_parted PARTITION OF aa_parted DEFAULT;
CREATE TABLE parent (id int);
CREATE TABLE child (more int) INHERITS (parent);
CREATE TABLE by_tenant (id int, tenant text NOT NULL, fencing_token bigint);
CREATE TABLE by_tenant_parted (id int, tenant text NOT NULL) PARTITION BY RANGE (id);
CREATE TABLE aa_by_tenant PARTITION OF by_tenant_parted DEFAULT;
SELECT fencing.guard('"My shop"."My exports"', 'the ''nightly'' \ "one"');
SELECT fencing.guard('stamped', 'nightly');
SELECT fencing.guard('parted', 'nightly');
SELECT fencing.guard('parent', 'nightly');
SELECT fencing.guard_by('by_tenant', 'tenant');
SELECT fencing.guard_by('by_tenant_parted', 'tenant', 'tenant/');
`

var (
	dumpedTables    = strings.Fields(`stamped parted parent child by_tenant by_tenant_parted`)
	dumpedResources = []string{`the 'nightly' \ "one"`, "nightly", "7", "tenant/7"}
)

// write writes to each guarded table as the holder of all resources, in the
// round of the given number.
func (*pairOfDatabases) write(t *testing.T, b *bundle, round int) (held map[string]fencing.Token) {
	t.Helper()
	held = map[string]fencing.Token{}
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	for _, resource := range dumpedResources {
		lease := b.lock(t, b.fencer, resource)
		require.NoError(t, lease.Stamp(t.Context(), tx))
		held[resource] = lease.Token()
		defer func() { require.NoError(t, lease.Unlock(t.Context())) }()
	}
	for _, sql := range []string{
		`INSERT INTO "My shop"."My exports" VALUES ($1, 'x')`,
		`INSERT INTO stamped VALUES ($1)`,
		`INSERT INTO parted VALUES ($1, 1), (100 + $1, 1)`,
		`INSERT INTO parted1 VALUES ($1, 2)`,
		`INSERT INTO parent VALUES ($1)`,
		`INSERT INTO child VALUES ($1, 1)`,
		`INSERT INTO by_tenant VALUES ($1, '7')`,
		`INSERT INTO by_tenant_parted VALUES ($1, '7')`,
	} {
		_, err := tx.Exec(t.Context(), sql, round)
		require.NoError(t, err, sql)
	}
	require.NoError(t, tx.Commit(t.Context()))
	return held
}

// all is what the tables hold, and which tokens.
func (*pairOfDatabases) all(t *testing.T, b *bundle) map[string]string {
	t.Helper()
	all := map[string]string{"exports": b.contents(t, `"My shop"."My exports"`)}
	for _, table := range dumpedTables {
		all[table] = b.contents(t, table)
	}
	return all
}

// The state of the row triggers differs from level to level.
func TestGuard_ofPartitionsOfPartitionsChecksWhatIsAttachedLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, dumpedSQL)
	requireProblems(t, b)
	b.exec(t, `CREATE TABLE later0 PARTITION OF parted FOR VALUES FROM (200) TO (300);
		CREATE TABLE later1 PARTITION OF parted2 FOR VALUES IN (3) PARTITION BY LIST (id);
		CREATE TABLE later2 PARTITION OF later1 DEFAULT;
		CREATE TABLE later3 PARTITION OF aa_parted FOR VALUES IN (160)`)
	refuse := func() {
		t.Helper()
		for _, sql := range []string{
			`INSERT INTO later0 VALUES (200, 1)`, `INSERT INTO later1 VALUES (150, 3)`, `INSERT INTO later2 VALUES (150, 3)`,
			`INSERT INTO later3 VALUES (160, 4)`,
		} {
			requireUnstamped(t, b, sql)
		}
	}
	refuse()
	p := &pairOfDatabases{}
	p.write(t, b, 1)
	report, err := fencing.Verify(t.Context(), b.pool)
	require.NoError(t, err)
	require.False(t, report.OK())
	b.exec(t, `SELECT fencing.guard('parted', 'nightly')`)
	requireProblems(t, b)
	refuse()
	requireGuarded(t, b)
	p.write(t, b, 2)
}

// requireGuarded says that nobody without a stamp writes anywhere.
func requireGuarded(t *testing.T, b *bundle) {
	t.Helper()
	for _, sql := range []string{
		`DELETE FROM "My shop"."My exports"`, `DELETE FROM stamped`, `INSERT INTO stamped VALUES (50)`, `DELETE FROM parted`,
		`INSERT INTO parted VALUES (3, 3)`, `INSERT INTO parted1 VALUES (4, 4)`, `TRUNCATE aa_parted`, `INSERT INTO aa_parted VALUES (150, 3)`,
		`TRUNCATE a0_parted`, `INSERT INTO a0_parted VALUES (150, 3)`,
		`INSERT INTO parent VALUES (1)`, `INSERT INTO child VALUES (1, 1)`, `TRUNCATE child`,
		`INSERT INTO by_tenant VALUES (2, '7')`, `TRUNCATE by_tenant`, `INSERT INTO aa_by_tenant VALUES (1, '7')`, `TRUNCATE aa_by_tenant`,
	} {
		requireUnstamped(t, b, sql)
	}
}

func requireUnstamped(t *testing.T, b *bundle, sql string) {
	t.Helper()
	for _, role := range []string{"origin", "replica"} {
		tx, err := b.pool.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `SELECT set_config('session_replication_role', $1, true)`, role)
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), sql)
		require.NoError(t, tx.Rollback(t.Context()))
		require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped, "%s: %s", role, sql)
	}
}

func TestDump_ofAll(t *testing.T) {
	t.Parallel()
	for n, format := range []string{"plain", "custom"} {
		t.Run(format, func(t *testing.T) {
			t.Parallel()
			p := dumpable(t)
			want := p.all(t, p.original)
			p.shell(t, commands(t, "All of it", n+1))
			require.Equal(t, want, p.all(t, p.copy))
			requireProblems(t, p.copy, copyProblem)
			require.Equal(t, copyProblem, strings.TrimSpace(p.shell(t, commands(t, "All of it", 3))))
			requireGuarded(t, p.copy)

			// The copy goes on where the original was.
			before := p.original.mark(t, "nightly")
			require.Equal(t, before, p.copy.mark(t, "nightly"))
			p.write(t, p.copy, 2)
			require.Greater(t, p.copy.mark(t, "nightly"), before)

			p.shell(t, commands(t, "All of it", 4))
			requireProblems(t, p.copy)
			p.write(t, p.original, 2)
			for resource, token := range p.write(t, p.copy, 3) {
				require.Greater(t, token, p.original.mark(t, resource))
			}
			requireGuarded(t, p.copy)
			requireGuarded(t, p.original)
			requireProblems(t, p.original)
			require.NoError(t, migrations.Up(t.Context(), p.copy.pool))
		})
	}
}

func TestDump_ofTheSchema(t *testing.T) {
	t.Parallel()
	p := dumpable(t)
	p.shell(t, commands(t, "The schema alone", 1))
	for table, content := range p.all(t, p.copy) {
		require.Empty(t, content, table)
	}
	requireGuarded(t, p.copy)
	p.write(t, p.copy, 1)
	report, err := fencing.Verify(t.Context(), p.copy.pool)
	require.NoError(t, err)
	require.Empty(t, report.Problems)
	require.NotEmpty(t, report.Tables)
	for _, table := range report.Tables {
		require.Contains(t, table.Problems[0].What, "a guard that is not recorded", table.Table)
	}
	for _, run := range []func(context.Context, *pgxpool.Pool) error{migrations.Up, migrations.Down} {
		require.ErrorContains(t, run(t.Context(), p.copy.pool), "without its rows")
	}

	// As the problem says. It makes no difference for the triggers.
	p.copy.exec(t, `SELECT fencing.guard('"My shop"."My exports"', 'the ''nightly'' \ "one"'), fencing.guard('stamped', 'nightly'),
		fencing.guard('parted', 'nightly'), fencing.guard('parent', 'nightly'), fencing.guard_by('by_tenant', 'tenant'),
		fencing.guard_by('by_tenant_parted', 'tenant', 'tenant/')`)
	requireProblems(t, p.copy)
}

func TestDump_ofTheSchemaAndTheRecords(t *testing.T) {
	t.Parallel()
	p := dumpable(t)
	p.shell(t, commands(t, "The schema alone", 2))
	requireProblems(t, p.copy)
	requireGuarded(t, p.copy)
	p.write(t, p.copy, 1)
	require.NoError(t, migrations.Up(t.Context(), p.copy.pool))
	requireProblems(t, p.copy)
}

// install makes the tables of the original in the copy, guarded and without rows,
// and gives it marks of its own.
func (p *pairOfDatabases) install(t *testing.T) {
	t.Helper()
	require.NoError(t, migrations.Up(t.Context(), p.copy.pool))
	p.copy.exec(t, dumpedSQL)
	for range 20 {
		require.NoError(t, p.copy.lock(t, p.copy.fencer, "nightly").Unlock(t.Context()))
	}
}

func TestDump_ofTheRowsWithoutTriggers(t *testing.T) {
	t.Parallel()
	p := dumpable(t)
	p.install(t)
	mark := p.copy.mark(t, "nightly")
	p.shell(t, commands(t, "The rows alone", 1))
	require.Equal(t, p.all(t, p.original), p.all(t, p.copy), "also the tokens in the rows")
	require.Equal(t, mark, p.copy.mark(t, "nightly"))
	requireProblems(t, p.copy)
	requireGuarded(t, p.copy)
	p.write(t, p.copy, 2)
}

func TestDump_ofTheRowsAsTheHolder(t *testing.T) {
	t.Parallel()
	p := dumpable(t)
	p.install(t)
	held := map[string]fencing.Token{}
	var stamps []string
	for _, resource := range dumpedResources {
		lease := p.copy.lock(t, p.copy.fencer, resource)
		held[resource] = lease.Token()
		stamps = append(stamps, fmt.Sprintf(`%s:%d`, strings.ReplaceAll(jsonOf(t, resource), `\`, `\\`), lease.Token()))
	}
	setting := "{" + strings.ReplaceAll(strings.Join(stamps, ","), " ", `\ `) + "}"
	p.shell(t, commands(t, "The rows alone", 2), "STAMPS="+setting)
	got, want := p.all(t, p.copy), p.all(t, p.original)
	require.Equal(t, fmt.Sprintf("(1,%d)", held["nightly"]), got["stamped"])
	require.Equal(t, fmt.Sprintf("(1,7,%d)", held["7"]), got["by_tenant"])
	for _, table := range []string{"stamped", "by_tenant"} {
		delete(got, table)
		delete(want, table)
	}
	require.Equal(t, want, got)
	requireProblems(t, p.copy)
	requireGuarded(t, p.copy)
}

func jsonOf(t *testing.T, text string) string {
	t.Helper()
	encoded, err := json.Marshal(text)
	require.NoError(t, err)
	return string(encoded)
}
