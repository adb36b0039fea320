package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// A lock for each tenant, and a table in which each row is its tenant's.
func ExampleGuardBy() {
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
	if _, err := pool.Exec(ctx, "CREATE TABLE invoices (tenant text, number int)"); err != nil {
		fmt.Println(err)
		return
	}
	if err := fencing.GuardBy(ctx, pool, "invoices", "tenant"); err != nil {
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
	err = fencer.TryDo(ctx, "acme", func(ctx context.Context, lease *fencing.Lease) error {
		return lease.InTx(ctx, pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO invoices VALUES ('acme', 1), ('acme', 2), ('globex', 1)")
			return err
		})
	})
	fmt.Println(errors.Is(err, fencing.ErrUnstamped), err)
	// Output: true fencing: transaction not stamped: ERROR: INSERT on public.invoices refused: the transaction is not stamped for resource "globex" (SQLSTATE LF002)
}
