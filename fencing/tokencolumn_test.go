package fencing_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// stampedSQL makes a table x of each kind, to be written to as target.
var stampedSQL = map[string]struct{ ddl, target string }{
	"plain":     {`CREATE TABLE x (id int PRIMARY KEY, tenant text, fencing_token bigint)`, `x`},
	"parent":    {stampedParentSQL, `x`},
	"partition": {stampedParentSQL, `part`},
	"child":     {`CREATE TABLE x (id int PRIMARY KEY, tenant text, fencing_token bigint NOT NULL DEFAULT 0); CREATE TABLE part (PRIMARY KEY (id)) INHERITS (x)`, `part`},
	// Of a partition whose columns are in another order.
	"shuffled": {
		`CREATE TABLE x (id int PRIMARY KEY, tenant text, fencing_token bigint) PARTITION BY RANGE (id);
			CREATE TABLE part (gone int, fencing_token bigint, tenant text, id int PRIMARY KEY); ALTER TABLE part DROP gone;
			ALTER TABLE x ATTACH PARTITION part DEFAULT`, `x`,
	},
}

const stampedParentSQL = `CREATE TABLE x (id int PRIMARY KEY, tenant text, fencing_token bigint) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF x DEFAULT`

// stampedWrites leave a row with the id 1, whatever token they try to write.
var stampedWrites = map[string]struct {
	wayToWrite
	changes bool // a row that is there
}{
	"INSERT":                   {wayToWrite{sql: `INSERT INTO %s (id, tenant) VALUES (1, 'a')`}, false},
	"INSERT of 0":              {wayToWrite{sql: `INSERT INTO %s (id, tenant, fencing_token) VALUES (1, 'a', 0)`}, false},
	"INSERT of another":        {wayToWrite{sql: `INSERT INTO %s (id, tenant, fencing_token) VALUES (1, 'a', 9223372036854775807)`}, false},
	"INSERT of NULL":           {wayToWrite{sql: `INSERT INTO %s (id, tenant, fencing_token) VALUES (1, 'a', NULL)`}, false},
	"COPY":                     {wayToWrite{sql: `COPY %s (id, tenant) FROM STDIN`, data: "1\ta\n"}, false},
	"COPY of another":          {wayToWrite{sql: `COPY %s (id, tenant, fencing_token) FROM STDIN`, data: "1\ta\t77\n"}, false},
	"replica role":             {wayToWrite{sql: `SET LOCAL session_replication_role = replica; INSERT INTO %s (id, tenant) VALUES (1, 'a')`}, false},
	"ON CONFLICT of a new row": {wayToWrite{sql: `INSERT INTO %s (id, tenant) VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET tenant = 'b'`}, false},
	"MERGE that inserts": {wayToWrite{since: 150000, sql: `MERGE INTO %s AS m USING (VALUES (1)) AS s (id) ON m.id = s.id
		WHEN NOT MATCHED THEN INSERT (id, tenant) VALUES (1, 'a')`}, false},
	"UPDATE":                {wayToWrite{sql: `UPDATE %s SET tenant = 'a' WHERE id = 1`}, true},
	"UPDATE of the token":   {wayToWrite{sql: `UPDATE %s SET fencing_token = 77`}, true},
	"UPDATE to 0":           {wayToWrite{sql: `UPDATE %s SET fencing_token = 0`}, true},
	"UPDATE to NULL":        {wayToWrite{sql: `UPDATE %s SET fencing_token = NULL`}, true},
	"ON CONFLICT DO UPDATE": {wayToWrite{sql: `INSERT INTO %s (id, tenant) VALUES (1, 'a') ON CONFLICT (id) DO UPDATE SET fencing_token = 77`}, true},
	"MERGE": {wayToWrite{since: 150000, sql: `MERGE INTO %s AS m USING (VALUES (1)) AS s (id) ON m.id = s.id
		WHEN MATCHED THEN UPDATE SET fencing_token = 77`}, true},
}

func TestGuard_stampsTheRowsOfATableWithAColumnForIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := 0
	for _, shape := range slices.Sorted(maps.Keys(stampedSQL)) {
		for _, by := range []bool{false, true} {
			n++
			schema := fmt.Sprintf("s%d", n)
			t.Run(fmt.Sprintf("%s, by=%t", shape, by), func(t *testing.T) {
				t.Parallel()
				requireStamped(t, b, schema, shape, by)
			})
		}
	}
}

func requireStamped(t *testing.T, b *bundle, schema, shape string, by bool) {
	t.Helper()
	conn, target := b.db.Conn(t), stampedSQL[shape].target
	_, err := conn.Exec(t.Context(), `CREATE SCHEMA `+schema+`; SET search_path = `+schema+`; `+stampedSQL[shape].ddl)
	require.NoError(t, err)
	if by {
		require.NoError(t, fencing.GuardByPrefix(t.Context(), conn, "x", "tenant", schema+"/"))
	} else {
		require.NoError(t, fencing.Guard(t.Context(), conn, "x", schema+"/a"))
	}
	_, err = conn.Exec(t.Context(), `SELECT pg_advisory_lock(hashtextextended($1, 0))`, schema+"/a")
	require.NoError(t, err)
	tokens := &grid{owner: conn, resource: schema + "/a"}
	tokens.issue(t)
	for _, write := range slices.Sorted(maps.Keys(stampedWrites)) {
		w := stampedWrites[write]
		if b.db.Server.Version() < w.since {
			t.Logf("%s: not applicable: the server is older", write)
			continue
		}
		_, err = conn.Exec(t.Context(), fmt.Sprintf(`BEGIN; %s; DELETE FROM x; INSERT INTO %s (id, tenant) SELECT 1, 'a' WHERE %t; COMMIT`,
			tokens.claim(t, "fresh"), target, w.changes))
		require.NoError(t, err, write)
		tokens.issue(t)
		require.NoError(t, transact(t, conn, `BEGIN; `+tokens.claim(t, "fresh"), w.wayToWrite, target, nil), write)
		require.Equal(t, tokens.current, one[fencing.Token](t, conn, `SELECT fencing_token FROM x WHERE id = 1`), write)
	}
}

func TestGuard_keepsTheColumnWhileTheTableIsGuarded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE x (id int, tenant text, fencing_token bigint)`)
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "x", "nightly"))
	_, err := b.observer.Exec(t.Context(), `ALTER TABLE x DROP COLUMN fencing_token`)
	requireCode(t, err, "2BP01")
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Contains(t, pgErr.Detail, "trigger zz_fencing_token on table x depends on column fencing_token of table x")
	_, err = b.observer.Exec(t.Context(), `ALTER TABLE x ALTER COLUMN fencing_token TYPE text`)
	requireCode(t, err, "0A000")
	require.NoError(t, fencing.Unguard(t.Context(), b.pool, "x"))
	b.exec(t, `ALTER TABLE x DROP COLUMN fencing_token`)
}

// A table that is guarded already may get the column later.
func TestGuard_againStampsAColumnThatWasAddedLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE x (id int, tenant text) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF x DEFAULT`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "x", "tenant"))
	lease := b.lock(t, b.fencer, "a")
	b.exec(t, `ALTER TABLE x ADD fencing_token bigint`)
	found := problems(t, b.pool, "public.x")
	require.Equal(t, []fencing.Problem{
		{What: "trigger zz_fencing_token of public.part is missing", Fix: "SELECT fencing.guard_by('public.x', 'tenant', '')"},
		{What: "trigger zz_fencing_token of public.x is missing", Fix: "SELECT fencing.guard_by('public.x', 'tenant', '')"},
	}, found)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "x", "tenant"))
	require.Empty(t, problems(t, b.pool, "public.x"))
	require.NoError(t, lease.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO part VALUES (1, 'a')`)
		return err
	}))
	require.Equal(t, lease.Token(), one[fencing.Token](t, b.observer, `SELECT fencing_token FROM x`))
}

// A row is stamped after what other triggers make of it.
func TestGuard_stampsWhatOtherTriggersHaveMadeOfARow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE x (id int, tenant text, fencing_token bigint);
		CREATE FUNCTION rewrite() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			new.tenant := 'b'; new.fencing_token := 77; RETURN new; END $$;
		CREATE TRIGGER z_rewrite BEFORE INSERT OR UPDATE ON x FOR EACH ROW EXECUTE FUNCTION rewrite()`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "x", "tenant"))
	leases := []*fencing.Lease{b.lock(t, b.fencer, "a"), b.lock(t, b.fencer, "b")}
	insert := func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO x VALUES (1, 'a')`)
		return err
	}
	// Which resource it is of is seen afterwards, too.
	require.ErrorIs(t, leases[0].InTx(t.Context(), b.pool, insert), fencing.ErrUnstamped)
	require.NoError(t, leases[1].InTx(t.Context(), b.pool, insert))
	require.Equal(t, fmt.Sprintf("(1,b,%d)", leases[1].Token()), b.contents(t, "x"))
}

func TestGuard_refusesAColumnThatCantBeStamped(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE DOMAIN d AS bigint`)
	for _, ddl := range []string{
		`CREATE TABLE t (fencing_token int)`,
		`CREATE TABLE t (fencing_token d)`,
		`CREATE TABLE t (id bigint, fencing_token bigint GENERATED ALWAYS AS (id) STORED)`,
		`CREATE TABLE t (id int); CREATE TABLE c (fencing_token text) INHERITS (t)`,
	} {
		err := guardNew(t.Context(), b.pool, ddl, "t")
		requireCode(t, err, "42804")
		require.ErrorContains(t, err, "is not a bigint", ddl)
	}
}
