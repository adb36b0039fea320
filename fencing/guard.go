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
// the guard, and can rewrite or drop the table; [Verify] tells.
//
// A table is guarded with all that is below it: a partitioned table with its
// partitions, a parent with its children, which can't be guarded alone. Call
// Guard again after one was added, or see the package's documentation for how
// that is done by itself: until then the rows of a new partition are checked one
// by one, and neither a TRUNCATE of it nor what is written to a new child directly
// is checked. A guarded table can't become a partition or a child of another.
//
// Where the table has a column fencing_token, of type bigint, each row that is
// inserted or updated gets the token of its transaction there.
//
// table is written as in SQL, with a schema and with quotes where it needs
// them. It must be permanent and logged: Guard refuses views, foreign tables,
// temporary and unlogged ones. A table is guarded for one resource; guarding it
// again for the same one makes its guard whole, where it is not, and for another
// one is an error. db must be connected as the table's owner. In SQL:
// SELECT fencing.guard('public.exports', 'nightly-export').
//
// Guard waits for the transactions that write to the table, and locks it for a
// moment; ctx bounds that. On an error of the server nothing is changed. When ctx ends
// first, pgx has the server cancel the statement, which can come too late: [Verify]
// tells.
func Guard(ctx context.Context, db Executor, table, resource string) error {
	return change(ctx, db, "guard", table, guardSQL, resource)
}

// GuardBy is [Guard] for a table whose rows are of different resources: the
// value of column is the name of the resource, whose current token the
// transaction must be stamped with to write the row. An UPDATE that gives the
// column another value needs the stamps of both; a row in which it is NULL can't
// be written, and the table can't be truncated. The column must be text or
// varchar, an integer, a boolean, an enum or uuid, and not generated; column is its
// name as it is, without quotes. Its value names the resource as the server prints
// it, so that true is t; texts name the same resource only if they are the same
// byte for byte, whatever the collation says. Domains over these will do.
//
// The check comes after the statement, once for each resource among its rows; a
// statement that writes no row needs no stamp.
// Renaming the column makes every write fail, until the table is guarded anew.
// In SQL: SELECT fencing.guard_by('public.orders', 'tenant').
func GuardBy(ctx context.Context, db Executor, table, column string) error {
	return GuardByPrefix(ctx, db, table, column, "")
}

// GuardByPrefix is [GuardBy] where the name of a row's resource is prefix
// followed by the column's value: "tenant/" and "7" make "tenant/7". In SQL:
// SELECT fencing.guard_by('public.orders', 'tenant', 'tenant/').
func GuardByPrefix(ctx context.Context, db Executor, table, column, prefix string) error {
	return change(ctx, db, "guard", table, guardBySQL, column, prefix)
}

// Unguard lets every role with the privilege write to table again, and to its
// partitions and children. Marks and tokens stay. That the table is not guarded
// is an error. db must be connected as the table's owner; ctx bounds the wait as
// with Guard.
func Unguard(ctx context.Context, db Executor, table string) error {
	return change(ctx, db, "unguard", table, unguardSQL)
}

func change(ctx context.Context, db Executor, verb, table, sql string, args ...any) error {
	if ctx == nil {
		return fmt.Errorf("fencing: %s %s: %w", verb, table, errNilContext)
	}
	if _, err := db.Exec(ctx, sql, append([]any{table}, args...)...); err != nil {
		return fmt.Errorf("fencing: %s %s: %w", verb, table, Translate(err))
	}
	return nil
}
