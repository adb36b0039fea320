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
	"github.com/pgadvisory/pgadvisory/fencing"
)

// scope is the instrumentation scope of all that is reported.
const scope = "github.com/pgadvisory/pgadvisory/otel"

// Observer reports what happens to the locks of one or several Lockers, and to the
// writes of Fencers; see the package's comment for what that is. It starts no
// goroutine and needs no closing; its MeterProvider keeps it. It is safe for
// concurrent use.
type Observer struct {
	instruments
	*counts
	tracer trace.Tracer

	// mu guards the field below. Nothing is reported under it: exporters and
	// samplers are others' code.
	mu sync.Mutex
	// holds has the locks of which one of the two calls has come so far: the
	// second takes its lock out. That is mostly Ended, but a lock can be lost
	// before the call that took it is told of.
	holds map[*advisory.Lock]*hold
}

var (
	_ advisory.AttemptObserver = (*Observer)(nil)
	_ fencing.Observer         = (*Observer)(nil)
)

// hold is a hold that has begun.
type hold struct {
	span  trace.Span
	start time.Time
	mode  attribute.KeyValue
	leads []attribute.KeyValue // the keys of a term of Lead

	ended *advisory.End // nil unless Ended came first; the rest is not set then
}

// NewObserver returns an Observer for [advisory.Config.Observer] and
// [fencing.Config.Observer]. A nil config means the defaults; see [Config]. It fails
// only if the MeterProvider does not make the instruments.
func NewObserver(config *Config) (*Observer, error) {
	c, values := config.withDefaults(), newCounts()
	i, err := newInstruments(c.MeterProvider.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL)), values)
	if err != nil {
		return nil, err
	}
	return &Observer{
		instruments: i,
		counts:      values,
		tracer:      c.TracerProvider.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)),
		holds:       make(map[*advisory.Lock]*hold),
	}, nil
}

// waitingKey is for the context of a call that is counted as waiting.
type waitingKey struct{}

// Attempting reports that a call waits.
func (o *Observer) Attempting(ctx context.Context, a advisory.Attempt) context.Context {
	mode := modeOf(a)
	o.add(waitingName, mode, 1)
	return context.WithValue(ctx, waitingKey{}, mode)
}

// Attempted reports a wait and, if the lock was granted, that a hold begins.
func (o *Observer) Attempted(ctx context.Context, a advisory.Attempt) {
	if mode, ok := ctx.Value(waitingKey{}).(attribute.KeyValue); ok {
		o.add(waitingName, mode, -1)
	}
	now := time.Now()
	outcome := waitOutcome(ctx, a.Err)
	mode := modeOf(a)
	common := common(a, mode)

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
	o.add(heldName, mode, 1)
	if a.Lead {
		for _, key := range a.Keys {
			h.leads = append(h.leads, keyKey.String(key.String()))
		}
	}
	for _, key := range h.leads {
		o.add(leadingName, key, 1)
	}
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
		o.add(lostName, reasonKey.String(string(reason)), 1)
	default:
		fail(h.span, e.Err, outcome)
	}
	h.span.End(trace.WithTimestamp(h.start.Add(e.Held)))
	o.held.Record(ctx, e.Held.Seconds(), metric.WithAttributes(h.mode, outcomeKey.String(outcome)))
	o.add(heldName, h.mode, -1)
	for _, key := range h.leads {
		o.add(leadingName, key, -1)
	}
}

// Refused reports a write that the database has refused, and notes it as an event
// of the span in ctx.
func (o *Observer) Refused(ctx context.Context, r fencing.Refusal) {
	reason := refusalKey.String(refusalOf(r.Err))
	o.add(refusedName, reason, 1)
	attributes := []attribute.KeyValue{reason}
	if r.Lease != nil {
		attributes = append(attributes, resourceKey.String(r.Lease.Resource()), tokenKey.Int64(int64(r.Lease.Token())))
	}
	trace.SpanFromContext(ctx).AddEvent("pgadvisory.write.refused", trace.WithAttributes(attributes...))
}

func fail(span trace.Span, err error, otherwise string) {
	span.SetStatus(codes.Error, err.Error())
	span.SetAttributes(errorType(err, otherwise))
}
