package otel_test

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5/pgxpool"
	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/otel"
)

// exportOnce exports under a lock that is reported.
func exportOnce(ctx context.Context, pool *pgxpool.Pool) error {
	observer, err := otel.NewObserver(nil) // for the providers that the program has set
	if err != nil {
		return err
	}
	locker, err := advisory.New(pool, &advisory.Config{Observer: observer})
	if err != nil {
		return err
	}
	return locker.Do(ctx, advisory.Name("nightly-export"), export)
}

func export(context.Context, *advisory.Lock) error {
	fmt.Println("exporting")
	return nil
}

// What is reported of one lock.
func ExampleNewObserver() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer pool.Close()

	// A program has a reader that exports.
	reader := metric.NewManualReader()
	global.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))

	if err := exportOnce(ctx, pool); err != nil {
		fmt.Println(err)
	}

	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		fmt.Println(err)
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			fmt.Println(m.Name, m.Unit)
		}
	}
	// Output:
	// exporting
	// pgadvisory.lock.wait.duration s
	// pgadvisory.lock.hold.duration s
	// pgadvisory.lock.waiting {call}
	// pgadvisory.lock.held {lock}
	// pgadvisory.lock.lost {lock}
	// pgadvisory.write.refused {transaction}
}
