package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A lock that is waited for, a second for it at most, and held in a handle.
func ExampleLocker_Lock() {
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

	wait, cancel := context.WithTimeout(ctx, time.Second) // bounds the wait, not the hold
	defer cancel()
	lock, err := locker.Lock(wait, advisory.Name("invoices"))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locker.TryLock(ctx, advisory.Name("invoices"))
	fmt.Println("held by somebody:", errors.Is(err, advisory.ErrNotAcquired))

	work, cancel := lock.Context(ctx) // ends if the lock is lost
	defer cancel()
	fmt.Println("still held:", work.Err() == nil)

	if err := lock.Unlock(ctx); err != nil {
		fmt.Println("somebody else may have worked at the same time:", err)
	}
	// Output:
	// held by somebody: true
	// still held: true
}
