package advisory_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Who holds a lock, and who waits for it.
func ExampleInspect() {
	ctx := context.Background()
	config, err := pgxpool.ParseConfig(os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	config.ConnConfig.RuntimeParams["application_name"] = "billing"
	pool, err := pgxpool.NewWithConfig(ctx, config)
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

	key := advisory.Name("month-end")
	err = locker.Do(ctx, key, func(ctx context.Context, lock *advisory.Lock) error {
		statuses, err := advisory.Inspect(ctx, pool, key)
		if err != nil {
			return err
		}
		for _, s := range statuses {
			fmt.Printf("%s %s, granted %t, to %s\n", s.Mode, s.Key, s.Granted, s.Application)
			fmt.Println("by this process:", s.PID == lock.BackendPID())
			fmt.Println("waits for nobody:", len(s.BlockedBy) == 0)
		}
		return nil
	})
	if err != nil {
		fmt.Println(err)
	}
	// Output:
	// exclusive "month-end" (8959280431666837964), granted true, to lock month-end of billing
	// by this process: true
	// waits for nobody: true
}
