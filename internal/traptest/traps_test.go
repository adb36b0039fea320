package traptest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/traptest"
)

// Each is caught, whatever becomes of its transaction.
func TestSet_catchesWhatLooksNamesUp(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	traptest.Set(t, db)
	require.Empty(t, traptest.Fired(t, db))
	for _, statement := range []struct{ path, sql string }{
		{"public", `SELECT has_function_privilege('fencing.issue(text)'::regprocedure, 'EXECUTE')`},
		{"public", `SELECT hashtextextended('nightly', 0)`},
		{"public", `SELECT 1 FROM pg_catalog.pg_proc p WHERE p.pronamespace <> 'fencing'::regnamespace LIMIT 1`},
		{traptest.First, `SELECT pg_backend_pid()`},
		{traptest.First, `SELECT 'x'::text`},
		{traptest.First, `SELECT l.pid FROM pg_locks l`},
		{traptest.First, `SELECT 1 WHERE 'a'::pg_catalog.text LIKE 'b'`},
		{traptest.First, `SELECT 1 WHERE 1 IN (1, 2)`},
		{traptest.First, `SELECT 1::int2 IS DISTINCT FROM 2::int8`},
		{"pg_catalog", `SELECT upper('good'::public.mood)`},
	} {
		conn := db.Conn(t, func(c *pgx.ConnConfig) { c.RuntimeParams["search_path"] = statement.path })
		_, err := conn.Exec(t.Context(), `BEGIN READ ONLY; `+statement.sql+`; ROLLBACK`)
		t.Log(statement.sql, err)
		require.NoError(t, conn.Close(t.Context()))
	}
	require.Subset(t, traptest.Fired(t, db), []string{
		"function has_function_privilege", "function hashtextextended", "operator <>", "function pg_backend_pid", "type text",
		"relation pg_locks", "operator ~~", "operator =", "cast to text",
	})
}
