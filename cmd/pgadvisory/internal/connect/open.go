package connect

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Open returns a pool of one connection, which it has made.
func Open(ctx context.Context, config *pgxpool.Config) (*pgxpool.Pool, error) {
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	conn, err := pool.Acquire(ctx) // costs nothing that is not needed anyway
	if err != nil {
		pool.Close()
		return nil, err
	}
	conn.Release()
	return pool, nil
}
