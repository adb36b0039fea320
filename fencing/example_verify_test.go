package fencing_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// Who owns a table can switch its guard off. A check at deployment, or one that
// runs each day, finds that.
func ExampleVerify() {
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
	if _, err := pool.Exec(ctx, "CREATE TABLE payouts (day date PRIMARY KEY)"); err != nil {
		fmt.Println(err)
		return
	}
	if err := fencing.Guard(ctx, pool, "payouts", "payout-run"); err != nil {
		fmt.Println(err)
		return
	}

	if _, err := pool.Exec(ctx, "ALTER TABLE payouts DISABLE TRIGGER fencing_guard"); err != nil {
		fmt.Println(err)
		return
	}
	report, err := fencing.Verify(ctx, pool)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, table := range report.Tables {
		for _, problem := range table.Problems {
			fmt.Println(problem.What)
			fmt.Println(problem.Fix)
		}
	}
	// Output:
	// trigger fencing_guard of public.payouts is disabled
	// SELECT fencing.guard('public.payouts', 'payout-run')
}
