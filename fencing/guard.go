package fencing

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Executor runs a statement: a pool, a connection or a transaction.
type Executor interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}

// Guard makes the database refuse each write to table whose transaction is not
// stamped with the current token of the resource: INSERT, UPDATE, DELETE,
// TRUNCATE, COPY, MERGE, cascades and whatever else changes rows, by whomever,
// in every isolation level. The table's own owner, and superusers, can remove
// the guard, can rewrite or drop the table, and can attach it to a parent:
// writes by way of a parent that the table gets later are not checked.
//
// table is written as in SQL, with a schema and with quotes where it needs
// them. It must be a permanent, logged, plain table: Guard refuses views,
// foreign tables, partitioned tables, partitions, and tables in an inheritance
// hierarchy. A table is guarded for one resource; guarding it again for the
// same one changes nothing, for another one is an error. db must be connected
// as the table's owner. In SQL: SELECT fencing.guard('public.exports',
// 'nightly-export').
//
// Guard waits for the transactions that use the table, and locks it for a
// moment; ctx bounds that. On an error nothing is changed.
func Guard(ctx context.Context, db Executor, table, resource string) error {
	if _, err := db.Exec(ctx, guardSQL, table, resource); err != nil {
		return fmt.Errorf("fencing: guard %s: %w", table, Translate(err))
	}
	return nil
}

// Unguard lets every role with the privilege write to table again. Marks and
// tokens stay. That the table is not guarded is an error. db must be connected
// as the table's owner; ctx bounds the wait as with Guard.
func Unguard(ctx context.Context, db Executor, table string) error {
	if _, err := db.Exec(ctx, unguardSQL, table); err != nil {
		return fmt.Errorf("fencing: unguard %s: %w", table, Translate(err))
	}
	return nil
}
