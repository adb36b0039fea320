package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func export(context.Context) error {
	fmt.Println("exporting")
	return nil
}

// exportOnce is called by each replica.
func exportOnce(ctx context.Context, pool *pgxpool.Pool) error {
	locker, err := advisory.New(pool, nil)
	if err != nil {
		return err
	}
	err = locker.TryDo(ctx, advisory.Name("nightly-export"), func(ctx context.Context, _ *advisory.Lock) error {
		return export(ctx) // ctx ends if the lock is lost
	})
	if errors.Is(err, advisory.ErrNotAcquired) {
		return nil // another replica is running it
	}
	return err
}

// A job that runs on one replica at a time.
func ExampleLocker_TryDo() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	if err := exportOnce(ctx, pool); err != nil {
		fmt.Println(err)
	}
	// Output: exporting
}
