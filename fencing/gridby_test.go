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

// shapesBy are the tables x in which the column tenant names each row's
// resource.
var shapesBy = map[string]struct {
	before, after, target string
	truncates             bool // open, because nobody is told of it
}{
	"plain":                          {before: `CREATE TABLE x ` + tenantColumnsSQL, target: `x`},
	"parent, by another column":      {before: byIDSQL + `; CREATE TABLE part PARTITION OF x FOR VALUES FROM (0) TO (100); CREATE TABLE rest PARTITION OF x DEFAULT`, target: `x`},
	"leaf, by another column":        {before: byIDSQL + partSQL, target: `part`},
	"later leaf, by another column":  {before: byIDSQL, after: `CREATE TABLE part PARTITION OF x DEFAULT`, target: `part`, truncates: true},
	"parent, by the column":          {before: byTenantSQL + tenantPartsSQL, target: `x`},
	"leaf, by the column":            {before: byTenantSQL + partSQL, target: `part`},
	"later leaf, by the column":      {before: byTenantSQL, after: `CREATE TABLE part PARTITION OF x DEFAULT`, target: `part`, truncates: true},
	"parent of later leaves, by the": {before: byTenantSQL, after: `SELECT` + tenantPartsSQL, target: `x`},
	"inheritance parent":             {before: `CREATE TABLE x ` + tenantColumnsSQL + `; CREATE TABLE part () INHERITS (x)`, target: `x`},
	"inherited child":                {before: `CREATE TABLE x ` + tenantColumnsSQL + `; CREATE TABLE part (UNIQUE (id, tenant)) INHERITS (x)`, target: `part`},
}

const (
	tenantColumnsSQL = `(id int, tenant text, batch int, UNIQUE (id, tenant))`
	byIDSQL          = `CREATE TABLE x ` + tenantColumnsSQL + ` PARTITION BY RANGE (id)`
	byTenantSQL      = `CREATE TABLE x ` + tenantColumnsSQL + ` PARTITION BY LIST (tenant)`
	tenantPartsSQL   = `; CREATE TABLE a PARTITION OF x FOR VALUES IN ('a'); CREATE TABLE b PARTITION OF x FOR VALUES IN ('b');
		CREATE TABLE rest PARTITION OF x DEFAULT`
	tenantRowsSQL = `INSERT INTO %s VALUES (1, 'a', 1), (2, 'b', 1)`
)

// writesBy are writes, and of what resources they touch rows: a, b, and NULL
// is of none.
var writesBy = map[string]struct {
	wayToWrite
	touches []string
}{
	"INSERT":                {wayToWrite{sql: `INSERT INTO %s VALUES (3, 'a')`}, []string{"a"}},
	"INSERT of two":         {wayToWrite{sql: `INSERT INTO %s VALUES (3, 'a'), (4, 'b')`}, []string{"a", "b"}},
	"INSERT of NULL":        {wayToWrite{sql: `INSERT INTO %s VALUES (3, NULL)`}, []string{"NULL"}},
	"INSERT of nothing":     {wayToWrite{sql: `INSERT INTO %s SELECT 3, 'a' WHERE false`}, nil},
	"COPY":                  {wayToWrite{sql: `COPY %s FROM STDIN`, data: "3\ta\t1\n4\tb\t1\n"}, []string{"a", "b"}},
	"UPDATE":                {wayToWrite{sql: `UPDATE %s SET batch = 2 WHERE tenant = 'b'`}, []string{"b"}},
	"UPDATE of all":         {wayToWrite{sql: `UPDATE %s SET batch = 2`}, []string{"a", "b"}},
	"UPDATE of no row":      {wayToWrite{sql: `UPDATE %s SET batch = 2 WHERE id = 9`}, nil},
	"UPDATE from a to b":    {wayToWrite{sql: `UPDATE %s SET tenant = 'b' WHERE id = 1`}, []string{"a", "b"}},
	"UPDATE from b to a":    {wayToWrite{sql: `UPDATE %s SET tenant = 'a' WHERE id = 2`}, []string{"a", "b"}},
	"UPDATE to NULL":        {wayToWrite{sql: `UPDATE %s SET tenant = NULL WHERE id = 1`}, []string{"a", "NULL"}},
	"UPDATE of the id":      {wayToWrite{sql: `UPDATE %s SET id = id + 100 WHERE tenant = 'a'`}, []string{"a"}},
	"DELETE":                {wayToWrite{sql: `DELETE FROM %s WHERE tenant = 'a'`}, []string{"a"}},
	"DELETE of all":         {wayToWrite{sql: `DELETE FROM %s`}, []string{"a", "b"}},
	"FOREIGN KEY":           {wayToWrite{sql: `DELETE FROM parent WHERE id = 1 AND '%s' <> ''`}, []string{"a", "b"}},
	"VIEW":                  {wayToWrite{sql: `UPDATE v SET tenant = 'a' WHERE id = 2 AND '%s' <> ''`}, []string{"a", "b"}},
	"ON CONFLICT DO UPDATE": {wayToWrite{sql: `INSERT INTO %s VALUES (2, 'b') ON CONFLICT (id, tenant) DO UPDATE SET batch = 2`}, []string{"b"}},
	"MERGE": {wayToWrite{since: 150000, sql: `MERGE INTO %s AS m USING (VALUES (2), (3)) AS s (id) ON m.id = s.id
		WHEN MATCHED THEN UPDATE SET tenant = 'a' WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'a', 1)`}, []string{"a", "b"}},
	"MERGE that moves": {wayToWrite{since: 150000, sql: `MERGE INTO %s AS m USING (VALUES (2)) AS s (id) ON m.id = s.id
		WHEN MATCHED THEN UPDATE SET tenant = 'a'`}, []string{"a", "b"}},
	"MERGE of the id": {wayToWrite{since: 150000, sql: `MERGE INTO %s AS m USING (VALUES (2)) AS s (id) ON m.id = s.id
		WHEN MATCHED THEN UPDATE SET id = m.id + 100`}, []string{"b"}},
	"TRUNCATE": {wayToWrite{sql: `TRUNCATE %s`}, []string{"a", "b", "NULL"}},
}

// claimsBy are what a transaction is stamped with for each resource, in which
// levels.
var claimsBy = []struct {
	a, b   string // as in claims
	levels []pgx.TxIsoLevel
}{
	{"fresh", "fresh", levels[:1]},
	{"fresh", "unstamped", levels[:1]},
	{"stale", "fresh", levels[:1]},
	{"fresh", "ahead", levels[:1]},
	{"overtaken", "fresh", levels},
	{"unstamped", "unstamped", levels[:1]},
}

// Each row is checked for the resource that it names, and no other.
func TestGuardBy_grid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n, shape := range slices.Sorted(maps.Keys(shapesBy)) {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			g := newGridBy(t, b, fmt.Sprintf("s%d", n), shape)
			for _, write := range slices.Sorted(maps.Keys(writesBy)) {
				if b.db.Server.Version() < writesBy[write].since {
					t.Logf("%s: not applicable: the server is older", write)
					continue
				}
				for _, claim := range claimsBy {
					for _, level := range claim.levels {
						g.check(t, level, write, claim.a, claim.b)
					}
				}
			}
		})
	}
}

// gridBy is one table in a schema of its own, guarded by its column tenant.
type gridBy struct {
	a, b          *grid // of which only the tokens are used
	shape         string
	owner, writer *pgx.Conn
	before        string
}

func newGridBy(t *testing.T, b *bundle, schema, shape string) *gridBy {
	t.Helper()
	s := shapesBy[shape]
	owner, writer := b.db.Conn(t), b.db.Conn(t)
	_, err := owner.Exec(t.Context(), fmt.Sprintf(`CREATE SCHEMA %[1]s; SET search_path = %[1]s; %[2]s`, schema, s.before))
	require.NoError(t, err)
	require.NoError(t, fencing.GuardByPrefix(t.Context(), owner, "x", "tenant", schema+"/"))
	_, err = owner.Exec(t.Context(), s.after+`; `+fmt.Sprintf(`CREATE TABLE parent (id int PRIMARY KEY); INSERT INTO parent VALUES (1), (2);
		ALTER TABLE %[1]s ADD FOREIGN KEY (batch) REFERENCES parent ON DELETE CASCADE; CREATE VIEW v AS SELECT id, tenant FROM %[1]s`, s.target))
	require.NoError(t, err)
	_, err = writer.Exec(t.Context(), `SET search_path = `+schema+`; SET lock_timeout = '10s'`)
	require.NoError(t, err)
	g := &gridBy{shape: shape, owner: owner, writer: writer}
	for tenant, tokens := range map[string]**grid{"a": &g.a, "b": &g.b} {
		*tokens = &grid{resource: schema + "/" + tenant, owner: owner}
		_, err = owner.Exec(t.Context(), `SELECT pg_advisory_lock(hashtextextended($1, 0))`, (*tokens).resource)
		require.NoError(t, err)
		(*tokens).issue(t)
		(*tokens).issue(t)
	}
	g.restore(t)
	g.before = g.a.contents(t)
	return g
}

func (g *gridBy) restore(t *testing.T) {
	t.Helper()
	_, err := g.owner.Exec(t.Context(), fmt.Sprintf(`BEGIN; %s; %s; DELETE FROM x; INSERT INTO parent VALUES (1) ON CONFLICT DO NOTHING; %s; COMMIT`,
		g.a.claim(t, "fresh"), g.b.claim(t, "fresh"), fmt.Sprintf(tenantRowsSQL, shapesBy[g.shape].target)))
	require.NoError(t, err)
}

// verdict is that of the first resource, in their order, that is refused.
func (g *gridBy) verdict(level pgx.TxIsoLevel, write string, claim map[string]string) verdict {
	if write == "TRUNCATE" {
		if shapesBy[g.shape].truncates {
			return open
		}
		return "LF002"
	}
	for _, resource := range writesBy[write].touches {
		if resource == "NULL" {
			return "LF002"
		}
		if v := claims[claim[resource]][slices.Index(levels, level)]; v != ok {
			return v
		}
	}
	return ok
}

func (g *gridBy) check(t *testing.T, level pgx.TxIsoLevel, write, a, b string) {
	t.Helper()
	what := fmt.Sprintf("%s, %s, a %s, b %s", write, level, a, b)
	want := g.verdict(level, write, map[string]string{"a": a, "b": b})
	var overtake func()
	if a == "overtaken" {
		overtake = func() { g.a.issue(t) }
	}
	begin := fmt.Sprintf(`BEGIN ISOLATION LEVEL %s; %s; %s`, level, g.a.claim(t, a), g.b.claim(t, b))
	err := transact(t, g.writer, begin, writesBy[write].wayToWrite, shapesBy[g.shape].target, overtake)
	after := contentsAfter(t, g.writer)
	if err != nil {
		requireVerdict(t, want, err, what)
		require.Equal(t, g.before, after, what)
		return
	}
	require.Contains(t, []verdict{ok, open}, want, "%s: was done", what)
	if len(writesBy[write].touches) > 0 {
		require.NotEqual(t, g.before, after, "%s: nothing was done", what)
		g.restore(t)
	}
}
