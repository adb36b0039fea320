package gate

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// TableSQL creates a table for [NewTable], by the name gate_marks.
const TableSQL = `CREATE TABLE IF NOT EXISTS gate_marks (resource text PRIMARY KEY, token bigint NOT NULL)`

// Database runs queries: a pool or a connection of pgx.
type Database interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Table is [Marks] in a table of PostgreSQL's.
type Table struct {
	db        Database
	get, lift string
}

// NewTable returns the marks in a table like that of [TableSQL], whose name is written as
// in SQL. The role needs SELECT, INSERT and UPDATE on it, and a synchronous_commit that
// survives a crash, as by default. A mark that does not rise costs no write.
func NewTable(db Database, table string) *Table {
	return &Table{
		db:  db,
		get: "SELECT token FROM " + table + " WHERE resource = $1",
		lift: "INSERT INTO " + table + " AS m (resource, token) VALUES ($1, $2) " +
			"ON CONFLICT (resource) DO UPDATE SET token = greatest(m.token, excluded.token) RETURNING token",
	}
}

// Raise is that of [Marks].
func (t *Table) Raise(ctx context.Context, resource string, token int64) (int64, error) {
	var mark int64
	err := t.db.QueryRow(ctx, t.get, resource).Scan(&mark)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return 0, fmt.Errorf("read the mark: %w", err)
	}
	if mark >= token {
		return mark, nil
	}
	err = t.db.QueryRow(ctx, t.lift, resource, token).Scan(&mark)
	return mark, err
}
