package otel_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/pgadvisory/pgadvisory/advisory"
)

var errNetwork = errors.New("network unreachable")

// refusals are the ways in which a lock is not granted.
var refusals = map[string]struct {
	err       error
	ended     bool // ctx had ended
	outcome   string
	errorType string // empty: no failure
}{
	"held by another": {
		err: advisory.ErrNotAcquired, outcome: "not_acquired",
	},
	"canceled": {
		err: context.Canceled, ended: true, outcome: "canceled", errorType: "canceled",
	},
	"locker closed": {
		err: advisory.ErrClosed, outcome: "canceled", errorType: "canceled",
	},
	"a timeout that is not the caller's": {
		err: context.DeadlineExceeded, outcome: "error", errorType: "_OTHER",
	},
	"an error when ctx has just ended": {
		err: errNetwork, ended: true, outcome: "error", errorType: "_OTHER",
	},
	"reserve": {
		err: advisory.ErrPoolExhausted, outcome: "pool_exhausted", errorType: "pool_exhausted",
	},
	"canceled while the pool was empty": {
		err: fmt.Errorf("%w: %w", advisory.ErrPoolExhausted, context.Canceled), ended: true, outcome: "pool_exhausted", errorType: "pool_exhausted",
	},
	"of the server": {
		err: &pgconn.PgError{Code: "53200"}, outcome: "error", errorType: "53200",
	},
}

func TestAttempted_reportsWhyALockWasNotGranted(t *testing.T) {
	t.Parallel()
	for name, r := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if r.ended {
				cancel()
			}
			err := fmt.Errorf("lock: %w", r.err)
			b.observer.Attempted(ctx, advisory.Attempt{Keys: []advisory.Key{advisory.ID(7)}, Err: err})

			require.Equal(t, []string{"pgadvisory.lock.wait.duration exclusive " + r.outcome + ": 1"}, b.values(t))
			span := b.ended(t, "pgadvisory.lock")
			require.Len(t, b.spans.Started(), 1)
			require.Equal(t, r.outcome, attributes(span)["pgadvisory.lock.outcome"])
			require.Equal(t, r.errorType, attributes(span)["error.type"])
			if r.errorType == "" {
				require.Equal(t, codes.Unset, span.Status().Code)
			} else {
				require.Equal(t, codes.Error, span.Status().Code)
				require.Equal(t, err.Error(), span.Status().Description)
			}
			require.Zero(t, b.observer.Open())
		})
	}
}

func TestAttempted_givesTheSpanTheTimeOfTheWaitAndTheCallersSpanAsParent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, caller := b.tracers.Tracer("test").Start(t.Context(), "caller")
	defer caller.End()
	before := time.Now()
	b.observer.Attempted(ctx, advisory.Attempt{
		Keys: []advisory.Key{advisory.Pair(1, 2), advisory.ID(7)}, Shared: true, Try: true,
		Waited: 3 * time.Minute, Err: advisory.ErrNotAcquired,
	})

	span := b.ended(t, "pgadvisory.lock")
	require.Equal(t, caller.SpanContext().SpanID(), span.Parent().SpanID())
	require.Equal(t, trace.SpanKindInternal, span.SpanKind())
	require.Equal(t, 3*time.Minute, span.EndTime().Sub(span.StartTime()))
	require.WithinRange(t, span.EndTime(), before, time.Now())
	require.Equal(t, map[string]string{
		"db.system.name":          "postgresql",
		"pgadvisory.lock.keys":    `["(1, 2)","7"]`,
		"pgadvisory.lock.mode":    "shared",
		"pgadvisory.lock.outcome": "not_acquired",
		"pgadvisory.lock.try":     "true",
	}, attributes(span))
}

// Exemplars lead from a bucket to the span that has the key.
func TestAttempted_recordsTheWaitInSecondsWithItsSpanAsTheExemplar(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.observer.Attempted(t.Context(), advisory.Attempt{Waited: 1500 * time.Millisecond, Err: advisory.ErrNotAcquired})

	m := b.collect(t)["pgadvisory.lock.wait.duration"]
	require.Equal(t, "s", m.Unit)
	require.NotEmpty(t, m.Description)
	histogram, ok := m.Data.(metricdata.Histogram[float64])
	require.True(t, ok)
	point := histogram.DataPoints[0]
	require.InDelta(t, 1.5, point.Sum, 1e-9)
	require.InDelta(t, 1800, point.Bounds[len(point.Bounds)-1], 0)
	require.Len(t, point.Exemplars, 1)
	id := b.ended(t, "pgadvisory.lock").SpanContext().SpanID()
	require.Equal(t, id[:], point.Exemplars[0].SpanID)
}
