package pgtest

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/migrations"
)

// migrate brings a fresh database to the schema that every test starts from.
func migrate(ctx context.Context, pool *pgxpool.Pool) error { return migrations.Up(ctx, pool) }
