//go:build unix

package main_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// database is what the program is given, and the view of it from outside.
type database struct {
	*pgtest.Database
	pool *pgxpool.Pool
}

func newDatabase(t *testing.T) *database {
	t.Helper()
	db := pgtest.New(t)
	return &database{db, db.Pool(t)}
}

func (d *database) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := d.pool.Exec(t.Context(), sql)
	require.NoError(t, err)
}

const (
	contentSQL = `
SELECT 'schema ' || nspname FROM pg_namespace WHERE nspname !~ '^pg_(toast_)?temp_'
UNION ALL
SELECT 'relation ' || oid::regclass FROM pg_class WHERE relnamespace <> 'pg_toast'::regnamespace
UNION ALL
SELECT 'function ' || oid::regprocedure FROM pg_proc
UNION ALL
SELECT 'trigger ' || tgname || ' on ' || tgrelid::regclass FROM pg_trigger
UNION ALL
SELECT 'lock of ' || pid FROM pg_locks
 WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
UNION ALL
SELECT 'session ' || application_name FROM pg_stat_activity
 WHERE datname = current_database() AND application_name LIKE 'batchexport%'
ORDER BY 1`

	resourcesSQL = "SELECT 'resource ' || name || ' with mark ' || mark FROM fencing.resource ORDER BY 1"
)

// snapshot returns all that a run could leave in the database.
func (d *database) snapshot(t *testing.T) []string {
	t.Helper()
	content := d.lines(t, contentSQL)
	for _, line := range content {
		if line == "schema fencing" {
			return append(content, d.lines(t, resourcesSQL)...)
		}
	}
	return content
}

func (d *database) lines(t *testing.T, sql string) []string {
	t.Helper()
	rows, err := d.pool.Query(t.Context(), sql)
	require.NoError(t, err)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	return lines
}

// requireUnchanged waits only for sessions, which end a moment after the
// process that had them.
func (d *database) requireUnchanged(t *testing.T, before []string) {
	t.Helper()
	d.requireNoSessions(t)
	require.Equal(t, before, d.snapshot(t))
}

func (d *database) requireNoSessions(t *testing.T) {
	t.Helper()
	inUse := func(line string) bool {
		return strings.HasPrefix(line, "session ") || strings.HasPrefix(line, "lock ")
	}
	deadline := time.After(time.Minute)
	for {
		content := d.snapshot(t)
		if !slices.ContainsFunc(content, inUse) {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			require.Fail(t, "still in use", strings.Join(content, "\n"))
		}
	}
}
