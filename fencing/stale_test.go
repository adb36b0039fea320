package fencing_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

func TestStaleError_namesTableResourceAndTokens(t *testing.T) {
	t.Parallel()
	b := setup(t)
	long := strings.Repeat("x", 63)
	for name, c := range map[string]struct {
		schema, table string
		want          string // empty where more than one way to quote is right
	}{
		"plain":               {"", `exports`, `public.exports`},
		"upper case":          {"", `"Exports"`, `public."Exports"`},
		"space":               {"", `"the exports"`, `public."the exports"`},
		"double quote":        {"", `"the ""big"" export"`, `public."the ""big"" export"`},
		"dot":                 {"", `"a.b"`, `public."a.b"`},
		"leading digit":       {"", `"2026"`, `public."2026"`},
		"not ASCII":           {"", `"größe"`, `public."größe"`},
		"reserved word":       {"", `"order"`, ``},
		"63 bytes":            {"", long, "public." + long},
		"schema":              {`archive`, `archive.exports`, `archive.exports`},
		"schema of odd name":  {`"My ""Archive"""`, `"My ""Archive""".exports`, `"My ""Archive""".exports`},
		"schema named a word": {`"order"`, `"order".exports`, ``},
	} {
		if c.schema != "" {
			b.exec(t, `CREATE SCHEMA IF NOT EXISTS `+c.schema)
		}
		b.guarded(t, c.table, name)
		old, current := b.superseded(t, name)

		err := old.InTx(t.Context(), b.pool, write(t.Context(), c.table, 3))
		var stale *fencing.StaleError
		require.ErrorAs(t, err, &stale, name)
		require.Equal(t, name, stale.Resource, name)
		require.Equal(t, old.Token(), stale.Token, name)
		require.Equal(t, current.Token(), stale.Current, name)
		// As it is written, SQL reads it as the same table.
		require.Equal(t, "(1,one) (2,two)", b.contents(t, stale.Table), name)
		if c.want != "" {
			require.Equal(t, c.want, stale.Table, name)
		}
		require.NoError(t, current.Unlock(t.Context()))
	}
}

var oddResources = map[string]string{
	"quotes":             `it's "the" export`,
	"two kinds of quote": `' "`,
	"backslashes":        `C:\new\table\`,
	"newline":            "one\ntwo\r\tthree",
	"emoji":              "🔒 экспорт",
	"like the detail":    "token=1 current=2",
	"like its end":       `x" resource="y`,
	"like JSON":          `{"a": null}`,
	"control character":  "bell\x07 escape\x1b",
	"line separator":     "a\u2028b",
	"dollar quote":       "$pgadvisory$; SELECT 1",
	"placeholder":        "$1 %s %L ?",
	"spaces":             "  ",
	"number":             "17",
	"html":               "<b>&amp;</b>",
	"long":               strings.Repeat("resource ", 200),
}

func TestStaleError_namesResourcesOfAnyText(t *testing.T) {
	t.Parallel()
	b := setup(t)
	n := 0
	for name, resource := range oddResources {
		n++
		table := fmt.Sprintf("exports_%d", n)
		b.guarded(t, table, resource)
		require.NoError(t, fencing.Guard(t.Context(), b.pool, table, resource), "%s: again", name)
		old := b.lock(t, b.fencer, resource)
		require.Equal(t, resource, old.Resource(), name)
		require.NoError(t, old.InTx(t.Context(), b.pool, write(t.Context(), table, 3)), name)
		require.NoError(t, old.Unlock(t.Context()))
		current := b.lock(t, b.fencer, resource)
		require.Equal(t, current.Token(), b.mark(t, resource), name)

		err := old.InTx(t.Context(), b.pool, write(t.Context(), table, 4))
		var stale *fencing.StaleError
		require.ErrorAs(t, err, &stale, name)
		require.Equal(t, "public."+table, stale.Table)
		require.Equal(t, resource, stale.Resource, name)
		require.Equal(t, old.Token(), stale.Token, name)
		require.Equal(t, current.Token(), stale.Current, name)
		require.Equal(t, "(1,one) (2,two) (3,written)", b.contents(t, table), name)
		require.NoError(t, current.Unlock(t.Context()))
	}
}

// A Lock that has to wait draws its token by another statement than one that
// does not.
func TestLock_waitsForResourcesOfAnyText(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.another(t)
	for name, resource := range oddResources {
		held := b.lock(t, b.fencer, resource)
		result := lockInBackground(t.Context(), other, resource)
		b.waitFor(t, "the other one waits", `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks
			WHERE locktype = 'advisory' AND NOT granted AND $1 = ANY (pg_blocking_pids(pid)))`, held.BackendPID())
		require.NoError(t, held.Unlock(t.Context()))
		got := receive(t, result)
		require.NoError(t, got.err, name)
		require.Equal(t, got.lease.Token(), b.mark(t, resource), name)
		require.Greater(t, got.lease.Token(), held.Token(), name)
		require.NoError(t, got.lease.Unlock(t.Context()))
	}
}

func TestStaleError_keepsTheServersError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	old, current := b.superseded(t, "nightly")
	err := old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3))

	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, `INSERT on public.exports refused: token 1 of resource "nightly" is stale, the current one is 2`, pgErr.Message)
	require.Equal(t, fmt.Sprintf(`token=%d current=%d resource="nightly" table="public.exports"`, old.Token(), current.Token()), pgErr.Detail)
	require.NotEmpty(t, pgErr.Hint)
	require.EqualError(t, err, fmt.Sprintf(
		`fencing: write to public.exports refused: token %d of resource "nightly" is stale, the current one is %d`,
		old.Token(), current.Token()))
}
