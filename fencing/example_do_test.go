package fencing_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// deploy runs once: the schema fencing, the application's table and its guard.
func deploy(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE exports (day date PRIMARY KEY)"); err != nil {
		return err
	}
	return fencing.Guard(ctx, pool, "exports", "nightly-export")
}

// exportNightly is called by each replica.
func exportNightly(ctx context.Context, pool *pgxpool.Pool, locker *advisory.Locker) error {
	fencer, err := fencing.New(locker, nil)
	if err != nil {
		return err
	}
	err = fencer.Do(ctx, "nightly-export", func(ctx context.Context, lease *fencing.Lease) error {
		_, err := lease.Exec(ctx, pool, "INSERT INTO exports (day) VALUES ('2018-01-31')")
		return err // errors.Is finds fencing.ErrStale if another has taken over
	})
	return err
}

// A write that the database accepts from the holder of a lock only.
func ExampleFencer_Do() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()
	locker, err := advisory.New(pool, nil)
	if err != nil {
		fmt.Println(err)
		return
	}

	if err := deploy(ctx, pool); err != nil {
		fmt.Println(err)
		return
	}
	if err := exportNightly(ctx, pool, locker); err != nil {
		fmt.Println(err)
		return
	}
	_, err = pool.Exec(ctx, "DELETE FROM exports") // somebody else, who holds nothing
	fmt.Println(fencing.Translate(err))
	// Output: fencing: transaction not stamped: ERROR: DELETE on public.exports refused: the transaction is not stamped for resource "nightly-export" (SQLSTATE LF002)
}
