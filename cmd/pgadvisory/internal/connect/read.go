package connect

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// beginSQL begins a transaction in which names without a schema mean PostgreSQL's
// own, whatever the search_path of the session is: an object that another role has
// put before them, or that fits better, must not be run with the rights of this
// one. It lasts for the transaction only, so that a pooler hands it to nobody.
const beginSQL = "BEGIN ISOLATION LEVEL READ COMMITTED READ ONLY; SET LOCAL search_path = pg_catalog, pg_temp"

// Read calls fn with a transaction that only reads, and rolls it back. Names
// without a schema mean PostgreSQL's own in it. It returns fn's error, or that of
// the begin.
func Read(ctx context.Context, pool *pgxpool.Pool, fn func(pgx.Tx) error) error {
	tx, err := pool.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginSQL})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }() // if it fails, pgx closes the connection
	return fn(tx)
}

// ReadRow reads one row as [Read] does, and scans it into values.
func ReadRow(ctx context.Context, pool *pgxpool.Pool, sql string, args []any, values ...any) error {
	return Read(ctx, pool, func(tx pgx.Tx) error { return tx.QueryRow(ctx, sql, args...).Scan(values...) })
}
