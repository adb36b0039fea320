package traptest

import (
	"context"
	_ "embed"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// First is a search_path that looks into evil before PostgreSQL's own objects.
const First = "evil, pg_catalog"

//go:embed traps.sql
var trapsSQL string

// limit bounds the wait for the server's statistics.
const limit = time.Minute

// Set sets the traps in a database of a test, and has the server count.
func Set(t testing.TB, db *pgtest.Database) {
	t.Helper()
	functions, operators := names(t)
	conn := connect(t, db)
	exec(t, conn, `ALTER DATABASE `+pgx.Identifier{db.Name}.Sanitize()+` SET track_functions = 'all'`)
	exec(t, conn, `SELECT set_config('traps.functions', $1::text[]::text, false), set_config('traps.operators', $2::text[]::text, false)`,
		functions, operators)
	exec(t, conn, trapsSQL)
	exec(t, conn, `CREATE FUNCTION traps.sentinel() RETURNS void LANGUAGE plpgsql AS 'BEGIN END'`)
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Exec runs statements in a session that it closes.
func Exec(t testing.TB, db *pgtest.Database, sql string) {
	t.Helper()
	conn := connect(t, db)
	exec(t, conn, sql)
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Fired returns the traps that were fired. It waits until all sessions in the
// database have ended: then the server has got their counts.
func Fired(t testing.TB, db *pgtest.Database) []string {
	t.Helper()
	observer := connect(t, db)
	poll(t, "the other sessions have ended", func(ctx context.Context) (done bool) {
		return query[bool](ctx, t, observer, `SELECT NOT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend')`)[0]
	})
	// Before PostgreSQL 15 counts take their way in the order in which they are sent.
	Exec(t, db, `SELECT traps.sentinel()`)
	var fired []string
	poll(t, "the counts have come", func(ctx context.Context) bool {
		fired = query[string](ctx, t, observer, `SELECT funcname FROM pg_stat_user_functions
			WHERE schemaname = 'traps' AND funcname ~ '^(function|operator|type|relation|cast|sentinel)' ORDER BY funcname <> 'sentinel', 1`)
		return len(fired) > 0 && fired[0] == "sentinel"
	})
	if err := observer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	return fired[1:]
}

// connect returns a session in which no trap can fire.
func connect(t testing.TB, db *pgtest.Database) *pgx.Conn {
	t.Helper()
	return db.Conn(t, func(c *pgx.ConnConfig) { c.RuntimeParams["search_path"] = "pg_catalog" })
}

func exec(t testing.TB, conn *pgx.Conn, sql string, args ...any) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("traptest: %v", err)
	}
}

func query[T any](ctx context.Context, t testing.TB, conn *pgx.Conn, sql string) []T {
	t.Helper()
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		t.Fatalf("traptest: %v", err)
	}
	values, err := pgx.CollectRows(rows, pgx.RowTo[T])
	if err != nil {
		t.Fatalf("traptest: %v", err)
	}
	return values
}

func poll(t testing.TB, what string, done func(context.Context) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for !done(ctx) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			t.Fatalf("traptest: waited too long until %s", what)
		}
	}
}
