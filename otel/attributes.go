package otel

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
)

// The names and values are an interface: dashboards and alerts go by them.
const (
	modeKey    = attribute.Key("pgadvisory.lock.mode")
	outcomeKey = attribute.Key("pgadvisory.lock.outcome")
	reasonKey  = attribute.Key("pgadvisory.lost.reason")
	refusalKey = attribute.Key("pgadvisory.write.refusal")
	keyKey     = attribute.Key("pgadvisory.lead.key")

	keysKey      = attribute.Key("pgadvisory.lock.keys") // spans only: see doc.go
	semaphoreKey = attribute.Key("pgadvisory.lock.semaphore")
	tryKey       = attribute.Key("pgadvisory.lock.try")
	leadKey      = attribute.Key("pgadvisory.lock.lead")
	tokenKey     = attribute.Key("pgadvisory.lock.token")
	resourceKey  = attribute.Key("pgadvisory.write.resource")
	pidKey       = attribute.Key("pgadvisory.backend.pid")
)

// The modes.
const (
	exclusive = "exclusive"
	shared    = "shared"
	semaphore = "semaphore"
)

// reasons are those of a loss.
var reasons = []advisory.LostReason{
	advisory.LostTerminated, advisory.LostDisconnected, advisory.LostUnresponsive, advisory.LostNotHeld,
}

// The reasons for which a write is refused.
const (
	stale        = "stale"
	unstamped    = "unstamped"
	unknownToken = "unknown_token"
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

func modeOf(a advisory.Attempt) attribute.KeyValue {
	switch {
	case a.Semaphore != "":
		return modeKey.String(semaphore)
	case a.Shared:
		return modeKey.String(shared)
	default:
		return modeKey.String(exclusive)
	}
}

func refusalOf(err error) string {
	switch {
	case errors.Is(err, fencing.ErrStale):
		return stale
	case errors.Is(err, fencing.ErrUnstamped):
		return unstamped
	default:
		return unknownToken
	}
}

// common are the attributes of both spans of an attempt.
func common(a advisory.Attempt, mode attribute.KeyValue) []attribute.KeyValue {
	attributes := []attribute.KeyValue{semconv.DBSystemNamePostgreSQL, mode}
	if len(a.Keys) > 0 || a.Semaphore == "" {
		attributes = append(attributes, keysOf(a.Keys))
	}
	if a.Semaphore != "" {
		attributes = append(attributes, semaphoreKey.String(a.Semaphore))
	}
	if a.Lead {
		attributes = append(attributes, leadKey.Bool(true))
	}
	if a.Lock != nil {
		attributes = append(attributes, pidKey.Int64(int64(a.Lock.BackendPID())))
		if a.Token > 0 {
			attributes = append(attributes, tokenKey.Int64(a.Token))
		}
	}
	return append(attributes, serverOf(a.Server)...)
}

// serverOf are the attributes of OpenTelemetry's conventions for databases.
func serverOf(s advisory.Server) (attributes []attribute.KeyValue) {
	if s.Host != "" {
		attributes = append(attributes, semconv.ServerAddress(s.Host))
		if !strings.HasPrefix(s.Host, "/") { // a socket's port is a part of its name
			attributes = append(attributes, semconv.ServerPort(int(s.Port)))
		}
	}
	if s.Database != "" {
		attributes = append(attributes, semconv.DBNamespace(s.Database))
	}
	if tcp, ok := s.Addr.(*net.TCPAddr); ok {
		attributes = append(attributes, semconv.NetworkPeerAddress(tcp.IP.String()), semconv.NetworkPeerPort(tcp.Port))
	}
	return attributes
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
