package fencing_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// requireGuardsBy writes a row as the holder of what the value names, and as
// nobody.
func requireGuardsBy(t *testing.T, b *bundle, table, value, resource string) {
	t.Helper()
	insert := func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s VALUES (%s)`, table, value))
		return err
	}
	lease := b.lock(t, b.fencer, resource)
	require.NoError(t, lease.InTx(t.Context(), b.pool, insert), "%s %s", table, value)
	require.NoError(t, lease.Unlock(t.Context()))
	err := fencing.Translate(pgx.BeginFunc(t.Context(), b.pool, insert))
	require.ErrorIs(t, err, fencing.ErrUnstamped, "%s %s", table, value)
}

func TestGuardBy_takesColumnsOfWhichEachValueIsOneName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TYPE mood AS ENUM ('sad', 'it''s "fine"'); CREATE DOMAIN code AS varchar(10) CHECK (value <> 'x');
		CREATE DOMAIN codes AS code; CREATE DOMAIN number AS bigint; CREATE DOMAIN feeling AS mood`)
	n := 0
	for kind, c := range map[string][2]string{
		"text":        {`'acme'`, "acme"},
		"varchar(20)": {`'acme'`, "acme"},
		"name":        {`'acme'`, "acme"},
		"smallint":    {`-7`, "-7"},
		"int":         {`7`, "7"},
		"bigint":      {`-9223372036854775808`, "-9223372036854775808"},
		"boolean":     {`true`, "t"},
		"uuid":        {`'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'`, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"},
		"mood":        {`'it''s "fine"'`, `it's "fine"`},
		"code":        {`'acme'`, "acme"},
		"codes":       {`'acme'`, "acme"},
		"number":      {`7`, "7"},
		"feeling":     {`'sad'`, "sad"},
	} {
		n++
		table, prefix := fmt.Sprintf("t%d", n), fmt.Sprintf("%d/", n)
		b.exec(t, fmt.Sprintf(`CREATE TABLE %s (tenant %s)`, table, kind))
		require.NoError(t, fencing.GuardByPrefix(t.Context(), b.pool, table, "tenant", prefix), kind)
		requireGuardsBy(t, b, table, c[0], prefix+c[1])
	}
}

func TestGuardBy_refusesWhatItCantGuardBy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TYPE pair AS (a int, b int); CREATE DOMAIN price AS numeric; CREATE DOMAIN pairs AS pair; CREATE VIEW v AS SELECT 'a'::text AS tenant`)
	for _, kind := range []string{
		"char(20)", "numeric", "real", "double precision", "money", "date", "timestamptz", "time", "interval", "json", "jsonb", "bytea", "inet",
		"text[]", "int4range", "oid", "regclass", "bit(3)", "point", "pair", "price", "xml", "tsvector",
	} {
		err := guardByNew(t, b.pool, `CREATE TABLE t (tenant `+kind+`)`, "t", "tenant")
		requireCode(t, err, "42804")
		require.ErrorContains(t, err, `t can't be guarded by its column tenant: its type is `, kind)
		requireIsOnly(t, err, nil)
	}
	const plain = `CREATE TABLE t (id int, tenant text, gone text); ALTER TABLE t DROP gone`
	for name, c := range map[string]struct{ ddl, table, column, code, message string }{
		"no such column":       {plain, `t`, `nothing`, "42703", `public.t has no column nothing`},
		"of other letters":     {plain, `t`, `Tenant`, "42703", `has no column "Tenant"`},
		"dropped column":       {plain, `t`, `........pg.dropped.3........`, "42703", `has no column`},
		"no column":            {plain, `t`, ``, "42703", `has no column ""`},
		"system column":        {plain, `t`, `tableoid`, "42703", `has no column tableoid`},
		"no such table":        {plain, `u`, `tenant`, "42P01", `"u" does not exist`},
		"view":                 {plain, `v`, `tenant`, "42809", `not a table of this database`},
		"partition":            {`CREATE TABLE p (tenant text) PARTITION BY LIST (tenant); CREATE TABLE t PARTITION OF p DEFAULT`, `t`, `tenant`, "42809", `belongs to public.p`},
		"guarded by another":   {plain + `; SELECT fencing.guard_by('t', 'tenant')`, `t`, `id`, "55000", `t is guarded by its column tenant already`},
		"guarded for resource": {plain + `; SELECT fencing.guard('t', 'nightly')`, `t`, `id`, "55000", `t is guarded for resource "nightly" already`},
		"with another prefix":  {plain + `; SELECT fencing.guard_by('t', 'tenant', 'x')`, `t`, `tenant`, "55000", `already`},
	} {
		err := guardByNew(t, b.pool, c.ddl, c.table, c.column)
		requireCode(t, err, c.code)
		require.ErrorContains(t, err, c.message, name)
	}
	for _, arguments := range []string{`NULL, 'tenant'`, `'v', NULL`, `'v', 'tenant', NULL`} {
		_, err := b.pool.Exec(t.Context(), `SELECT fencing.guard_by(`+arguments+`)`)
		requireCode(t, err, "22023")
	}
}

// guardByNew guards what it has made, and leaves nothing of it.
func guardByNew(t *testing.T, pool *pgxpool.Pool, ddl, table, column string) (err error) {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { err = errors.Join(err, tx.Rollback(t.Context())) }()
	_, err = tx.Exec(t.Context(), ddl)
	require.NoError(t, err)
	return fencing.GuardBy(t.Context(), tx, table, column)
}

func TestGuardBy_takesColumnsOfAnyName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for n, column := range []string{
		`"The tenant's"`, `"a""b"`, `"order"`, `"50%s"`, `"%1$I"`, `"a\b"`, `"$1.größe"`, `"new"`, `"value"`,
		`"` + strings.Repeat("x", 63) + `"`,
	} {
		table, prefix := fmt.Sprintf("t%d", n), fmt.Sprintf("%d %%s '\" \\", n)
		raw := strings.ReplaceAll(strings.Trim(column, `"`), `""`, `"`)
		b.exec(t, fmt.Sprintf(`CREATE TABLE %s (%s text, fencing_token bigint) PARTITION BY LIST (%s)`, table, column, column))
		require.NoError(t, fencing.GuardByPrefix(t.Context(), b.pool, table, raw, prefix), column)
		// Its rows are checked one by one.
		b.exec(t, fmt.Sprintf(`CREATE TABLE part%[1]d PARTITION OF t%[1]d DEFAULT`, n))
		requireGuardsBy(t, b, fmt.Sprintf("part%d", n), `'acme'`, prefix+"acme")
		require.Positive(t, one[int64](t, b.observer, `SELECT min(fencing_token) FROM `+table), column)
		require.NoError(t, fencing.GuardByPrefix(t.Context(), b.pool, table, raw, prefix), column)
		require.Empty(t, problems(t, b.pool, "public."+table), column)
		requireGuardsBy(t, b, fmt.Sprintf("part%d", n), `'acme'`, prefix+"acme")
	}
}

// Also where a session reads and writes string constants in the old way.
func TestGuard_takesResourcesOfAnyTextInSessionsOfOldStrings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old := b.db.Pool(t, large, with("standard_conforming_strings", "off"), with("escape_string_warning", "off"))
	fencer := newFencer(t, old, nil, nil)
	n := 0
	for name, resource := range oddResources {
		n++
		table := fmt.Sprintf("t%d", n)
		b.exec(t, fmt.Sprintf(`CREATE TABLE %[1]s (id int, fencing_token bigint); CREATE TABLE %[1]s_by (tenant text, fencing_token bigint)`, table))
		for _, pool := range []*pgxpool.Pool{old, b.pool} {
			require.NoError(t, fencing.Guard(t.Context(), pool, table, resource), name)
			require.NoError(t, fencing.GuardByPrefix(t.Context(), pool, table+"_by", "tenant", resource), name)
		}
		lease := b.lock(t, fencer, resource)
		for _, pool := range []*pgxpool.Pool{old, b.pool} {
			require.NoError(t, lease.InTx(t.Context(), pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %[1]s VALUES (1); INSERT INTO %[1]s_by VALUES ('')`, table))
				return err
			}), name)
		}
		require.NoError(t, lease.Unlock(t.Context()))
		// A row of each is named by the value alone, too.
		b.exec(t, fmt.Sprintf(`CREATE TABLE %s_all (tenant text)`, table))
		require.NoError(t, fencing.GuardBy(t.Context(), old, table+"_all", "tenant"))
		lease = b.lock(t, fencer, resource)
		require.NoError(t, lease.InTx(t.Context(), old, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), fmt.Sprintf(`INSERT INTO %s_all VALUES ($1)`, table), resource)
			return err
		}), name)
		require.NoError(t, lease.Unlock(t.Context()))
	}
	report, err := fencing.Verify(t.Context(), old)
	require.NoError(t, err)
	require.True(t, report.OK(), "%+v", report)
	require.Len(t, report.Tables, 3*n)
}

// A statement is checked once for all resources of its rows, not for each row.
func TestGuardBy_checksAStatementOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE orders (id int PRIMARY KEY, tenant text, note text) PARTITION BY RANGE (id); CREATE TABLE orders_1 PARTITION OF orders DEFAULT`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "orders", "tenant"))
	b.exec(t, `SET track_functions = 'pl'`)
	const countSQL = `SELECT coalesce(sum(calls), 0) FROM pg_stat_xact_user_functions WHERE funcname IN ('check_values', 'is_current')`
	calls := func(sql string) int {
		var n int
		require.NoError(t, pgx.BeginFunc(t.Context(), b.observer, func(tx pgx.Tx) error {
			for _, tenant := range []string{"a", "b", "c"} {
				token := one[fencing.Token](t, tx, issueWithLockSQL, tenant)
				require.NoError(t, fencing.Stamp(t.Context(), tx, tenant, token))
			}
			before := one[int](t, tx, countSQL)
			_, err := tx.Exec(t.Context(), sql)
			require.NoError(t, err)
			n = one[int](t, tx, countSQL) - before
			return nil
		}))
		return n
	}
	require.Equal(t, 1, calls(`INSERT INTO orders SELECT i, chr(97 + i % 3) FROM generate_series(1, 1000) i`))
	require.Equal(t, 1, calls(`UPDATE orders SET note = 'all'`))
	require.Equal(t, 1, calls(`UPDATE orders SET tenant = 'b' WHERE tenant = 'a'`))
	require.Equal(t, 1, calls(`UPDATE orders SET note = 'b' WHERE tenant = 'b'`))
	require.Zero(t, calls(`UPDATE orders SET note = 'd' WHERE tenant = 'd'`))
	require.Equal(t, 1, calls(`DELETE FROM orders_1 WHERE tenant = 'c'`))
	require.Equal(t, 1, calls(`INSERT INTO orders VALUES (1, 'b') ON CONFLICT (id) DO UPDATE SET tenant = 'b'`))
	b.exec(t, `SELECT pg_advisory_unlock_all()`)
}

// Texts that a collation takes for the same are different resources.
func TestGuardBy_tellsTextsApartThatCompareEqual(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if !one[bool](t, b.observer, `SELECT EXISTS (SELECT FROM pg_catalog.pg_collation WHERE collprovider = 'i')`) {
		t.Skip("not applicable: the server was built without ICU")
	}
	b.exec(t, `CREATE COLLATION anycase (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		CREATE TABLE orders (id int, tenant text COLLATE anycase)`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "orders", "tenant"))
	lease := b.lock(t, b.fencer, "acme")
	for _, values := range []string{`(1, 'acme'), (2, 'ACME')`, `(2, 'ACME'), (1, 'acme')`} {
		err := lease.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `INSERT INTO orders VALUES `+values)
			return err
		})
		require.ErrorIs(t, err, fencing.ErrUnstamped)
	}
	require.Empty(t, b.contents(t, "orders"))
}
