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

// install runs once: the schema fencing, a table and its guard.
func install(ctx context.Context, pool *pgxpool.Pool) error {
	if err := migrations.Up(ctx, pool); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "CREATE TABLE report (line text)"); err != nil {
		return err
	}
	return fencing.Guard(ctx, pool, "report", "monthly-report")
}

// add is a write by whoever has the lease.
func add(ctx context.Context, pool *pgxpool.Pool, lease *fencing.Lease, line string) error {
	return lease.InTx(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO report VALUES ($1)", line)
		return err
	})
}

// takeOver shows two workers, of which the first goes on after its time.
func takeOver(ctx context.Context, pool *pgxpool.Pool, fencer *fencing.Fencer) error {
	first, err := fencer.Lock(ctx, "monthly-report")
	if err != nil {
		return err
	}
	if err := errors.Join(add(ctx, pool, first, "by the first"), first.Unlock(ctx)); err != nil {
		return err
	}
	return fencer.Do(ctx, "monthly-report", func(ctx context.Context, second *fencing.Lease) error {
		fmt.Println("the second has a larger token:", second.Token() > first.Token())
		err := add(ctx, pool, first, "by the first again")
		fmt.Println("the first is refused:", errors.Is(err, fencing.ErrStale))
		return add(ctx, pool, second, "by the second")
	})
}

// A worker that was superseded can't write, whether or not it knows.
func ExampleLease_InTx() {
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
	fencer, err := fencing.New(locker, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := install(ctx, pool); err != nil {
		fmt.Println(err)
		return
	}
	if err := takeOver(ctx, pool, fencer); err != nil {
		fmt.Println(err)
	}
	// Output:
	// the second has a larger token: true
	// the first is refused: true
}
