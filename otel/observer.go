package otel

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// scope is the instrumentation scope of all that is reported.
const scope = "github.com/pgadvisory/pgadvisory/otel"

// Observer reports what happens to the locks of one or several Lockers; see the
// package's comment for what that is. It starts no goroutine and needs no
// closing. It is safe for concurrent use.
type Observer struct {
	instruments
	tracer trace.Tracer

	// mu guards the field below. Nothing is reported under it: exporters and
	// samplers are others' code.
	mu sync.Mutex
	// holds has the locks of which one of the two calls has come so far: the
	// second takes its lock out. That is mostly Ended, but a lock can be lost
	// before the call that took it is told of.
	holds map[*advisory.Lock]*hold
}

var _ advisory.Observer = (*Observer)(nil)

// hold is a hold that has begun.
type hold struct {
	span  trace.Span
	start time.Time
	mode  attribute.KeyValue

	ended *advisory.End // nil unless Ended came first; the rest is not set then
}

// NewObserver returns an Observer for [advisory.Config.Observer]. A nil config
// means the defaults; see [Config]. It fails only if the MeterProvider does not
// make the instruments.
func NewObserver(config *Config) (*Observer, error) {
	c := config.withDefaults()
	i, err := newInstruments(c.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL)))
	if err != nil {
		return nil, err
	}
	return &Observer{
		instruments: i,
		tracer:      c.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)),
		holds:       make(map[*advisory.Lock]*hold),
	}, nil
}

// Attempted reports a wait and, if the lock was granted, that a hold begins.
func (o *Observer) Attempted(ctx context.Context, a advisory.Attempt) {
	now := time.Now()
	outcome := waitOutcome(ctx, a.Err)
	mode := modeOf(a.Shared)
	common := []attribute.KeyValue{semconv.DBSystemNamePostgreSQL, keysOf(a.Keys), mode}
	if a.Lock != nil {
		common = append(common, pidKey.Int64(int64(a.Lock.BackendPID())))
	}

	waitCtx, wait := o.tracer.Start(ctx, "pgadvisory.lock",
		trace.WithTimestamp(now.Add(-a.Waited)), trace.WithAttributes(common...),
		trace.WithAttributes(outcomeKey.String(outcome), tryKey.Bool(a.Try)))
	if outcome != granted && outcome != notAcquired {
		fail(wait, a.Err, outcome)
	}
	wait.End(trace.WithTimestamp(now))
	o.waited.Record(waitCtx, a.Waited.Seconds(), metric.WithAttributes(mode, outcomeKey.String(outcome)))

	if a.Lock == nil {
		return
	}
	_, span := o.tracer.Start(ctx, "pgadvisory.hold",
		trace.WithTimestamp(now), trace.WithAttributes(common...), trace.WithLinks(trace.LinkFromContext(waitCtx)))
	h := &hold{span: span, start: now, mode: mode}
	o.now.Add(ctx, 1, metric.WithAttributes(mode))
	if early := o.second(a.Lock, h); early != nil {
		o.end(h, *early.ended)
	}
}

// Ended reports that a hold has ended.
func (o *Observer) Ended(e advisory.End) {
	if h := o.second(e.Lock, &hold{ended: &e}); h != nil {
		o.end(h, e)
	}
}

// second returns what the first of the two calls for a lock has left, and takes
// it out. If this is the first, it leaves mine and returns nil.
func (o *Observer) second(lock *advisory.Lock, mine *hold) *hold {
	o.mu.Lock()
	defer o.mu.Unlock()
	if first, ok := o.holds[lock]; ok {
		delete(o.holds, lock)
		return first
	}
	o.holds[lock] = mine
	return nil
}

func (o *Observer) end(h *hold, e advisory.End) {
	outcome, reason := holdOutcome(e.Err)
	// The hold's context has long ended; what exemplars need of it is the span.
	ctx := trace.ContextWithSpan(context.Background(), h.span)

	h.span.SetAttributes(outcomeKey.String(outcome))
	switch outcome {
	case unlocked:
	case lost:
		h.span.SetAttributes(reasonKey.String(string(reason)))
		fail(h.span, e.Err, string(reason))
		o.lost.Add(ctx, 1, metric.WithAttributes(reasonKey.String(string(reason))))
	default:
		fail(h.span, e.Err, outcome)
	}
	h.span.End(trace.WithTimestamp(h.start.Add(e.Held)))
	o.held.Record(ctx, e.Held.Seconds(), metric.WithAttributes(h.mode, outcomeKey.String(outcome)))
	o.now.Add(ctx, -1, metric.WithAttributes(h.mode))
}

func fail(span trace.Span, err error, otherwise string) {
	span.SetStatus(codes.Error, err.Error())
	span.SetAttributes(errorType(err, otherwise))
}
