package otel

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// The names and values are an interface: dashboards and alerts go by them.
const (
	modeKey    = attribute.Key("pgadvisory.lock.mode")
	outcomeKey = attribute.Key("pgadvisory.lock.outcome")
	reasonKey  = attribute.Key("pgadvisory.lost.reason")

	keysKey = attribute.Key("pgadvisory.lock.keys") // spans only: see doc.go
	tryKey  = attribute.Key("pgadvisory.lock.try")
	pidKey  = attribute.Key("pgadvisory.backend.pid")
)

const (
	granted       = "granted"
	notAcquired   = "not_acquired"
	canceled      = "canceled"
	poolExhausted = "pool_exhausted"
	unlocked      = "unlocked"
	lost          = "lost"
	failed        = "error"
)

func modeOf(shared bool) attribute.KeyValue {
	if shared {
		return modeKey.String("shared")
	}
	return modeKey.String("exclusive")
}

// waitOutcome says how a call that locks has ended. ctx is the call's: an error
// of a timeout that was not the caller's is no cancellation.
func waitOutcome(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return granted
	case errors.Is(err, advisory.ErrNotAcquired):
		return notAcquired
	case errors.Is(err, advisory.ErrPoolExhausted):
		return poolExhausted
	case errors.Is(err, advisory.ErrClosed), ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return canceled
	default:
		return failed
	}
}

// holdOutcome says how a hold has ended, and why if the lock was lost.
func holdOutcome(err error) (outcome string, reason advisory.LostReason) {
	if err == nil {
		return unlocked, ""
	}
	if loss, ok := errors.AsType[*advisory.LostError](err); ok {
		return lost, loss.Reason
	}
	return failed, ""
}

// errorType is the error.type of err; otherwise is what to say when the server
// has not.
func errorType(err error, otherwise string) attribute.KeyValue {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok:
		return semconv.ErrorTypeKey.String(pgErr.Code)
	case otherwise == failed:
		return semconv.ErrorTypeOther
	default:
		return semconv.ErrorTypeKey.String(otherwise)
	}
}

func keysOf(keys []advisory.Key) attribute.KeyValue {
	names := make([]string, len(keys))
	for i, k := range keys {
		names[i] = k.String()
	}
	return keysKey.StringSlice(names)
}
