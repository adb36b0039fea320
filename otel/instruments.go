package otel

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

// instruments are what is measured. Those that count what is there now, or what has
// happened since the start, are asked for their value at each collection: a
// provider that is set later gets the same as one that was there from the start.
type instruments struct {
	waited metric.Float64Histogram
	held   metric.Float64Histogram
}

// The bounds of the histograms' buckets in seconds: a lock that is free takes
// one round trip, and a leader holds for days.
var (
	waitBounds = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800}
	holdBounds = []float64{0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600}
)

func newInstruments(meter metric.Meter, c *counts) (instruments, error) {
	var i instruments
	var errs []error
	check := func(err error) { errs = append(errs, err) }
	var err error
	i.waited, err = meter.Float64Histogram("pgadvisory.lock.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("How long calls that lock took."),
		metric.WithExplicitBucketBoundaries(waitBounds...))
	check(err)
	i.held, err = meter.Float64Histogram("pgadvisory.lock.hold.duration", metric.WithUnit("s"),
		metric.WithDescription("How long locks were held, from the grant to the end."),
		metric.WithExplicitBucketBoundaries(holdBounds...))
	check(err)

	observed := make(map[string]metric.Int64Observable)
	observed[waitingName], err = meter.Int64ObservableUpDownCounter(waitingName, metric.WithUnit("{call}"),
		metric.WithDescription("Calls that lock and have not returned yet."))
	check(err)
	observed[heldName], err = meter.Int64ObservableUpDownCounter(heldName, metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that are held now."))
	check(err)
	observed[leadingName], err = meter.Int64ObservableUpDownCounter(leadingName, metric.WithUnit("{term}"),
		metric.WithDescription("Terms of Lead in this process now."))
	check(err)
	observed[lostName], err = meter.Int64ObservableCounter(lostName, metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that were lost before they were unlocked."))
	check(err)
	observed[refusedName], err = meter.Int64ObservableCounter(refusedName, metric.WithUnit("{transaction}"),
		metric.WithDescription("Transactions of which the database refused a write."))
	check(err)
	if err := errors.Join(errs...); err != nil {
		return instruments{}, fmt.Errorf("otel: make the instruments: %w", err)
	}

	var all []metric.Observable
	for _, instrument := range observed {
		all = append(all, instrument)
	}
	// For as long as the provider lives.
	_, err = meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for s, n := range c.all() {
			o.ObserveInt64(observed[s.name], n, metric.WithAttributes(s.attr))
		}
		return nil
	}, all...)
	if err != nil {
		return instruments{}, fmt.Errorf("otel: register the instruments: %w", err)
	}
	return i, nil
}
