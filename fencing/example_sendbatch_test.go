package fencing_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// refill writes two statements in one round trip. Both are done, or none is.
func refill(ctx context.Context, pool *pgxpool.Pool, lease *fencing.Lease) error {
	batch := &pgx.Batch{}
	batch.Queue("DELETE FROM prices")
	batch.Queue("INSERT INTO prices VALUES ('tea', 3), ('coffee', 4) RETURNING article").Query(func(rows pgx.Rows) error {
		articles, err := pgx.CollectRows(rows, pgx.RowTo[string])
		fmt.Println(articles)
		return err
	})
	return lease.SendBatch(ctx, pool, batch)
}

// Several writes that carry the token, in one round trip.
func ExampleLease_SendBatch() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	if err := migrations.Up(ctx, pool); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE prices (article text, price int)"); err != nil {
		fmt.Println(err)
		return
	}
	if err := fencing.Guard(ctx, pool, "prices", "price-list"); err != nil {
		fmt.Println(err)
		return
	}
	locker, err := advisory.New(pool, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	fencer, err := fencing.New(locker, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	err = fencer.Do(ctx, "price-list", func(ctx context.Context, lease *fencing.Lease) error {
		return refill(ctx, pool, lease)
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output: [tea coffee]
}
