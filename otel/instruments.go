package otel

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

type instruments struct {
	waited metric.Float64Histogram
	held   metric.Float64Histogram
	now    metric.Int64UpDownCounter
	lost   metric.Int64Counter
}

// The bounds of the histograms' buckets in seconds: a lock that is free takes
// one round trip, and a leader holds for days.
var (
	waitBounds = []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800}
	holdBounds = []float64{0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800, 3600, 6 * 3600, 24 * 3600}
)

func newInstruments(meter metric.Meter) (instruments, error) {
	var i instruments
	var errs [4]error
	i.waited, errs[0] = meter.Float64Histogram("pgadvisory.lock.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("How long calls that lock took."),
		metric.WithExplicitBucketBoundaries(waitBounds...))
	i.held, errs[1] = meter.Float64Histogram("pgadvisory.lock.hold.duration", metric.WithUnit("s"),
		metric.WithDescription("How long locks were held, from the grant to the end."),
		metric.WithExplicitBucketBoundaries(holdBounds...))
	i.now, errs[2] = meter.Int64UpDownCounter("pgadvisory.lock.held", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that are held now."))
	i.lost, errs[3] = meter.Int64Counter("pgadvisory.lock.lost", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that were lost before they were unlocked."))
	if err := errors.Join(errs[:]...); err != nil {
		return instruments{}, fmt.Errorf("otel: make the instruments: %w", err)
	}
	return i, nil
}
