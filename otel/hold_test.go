package otel_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// grants returns n attempts whose Locks are real, but have ended already: to an
// Observer it makes no difference, and what it is told is up to the test.
func grants(t *testing.T, n int) []advisory.Attempt {
	t.Helper()
	key := advisory.ID(7)
	locker, err := advisory.New(pgtest.New(t).Pool(t), nil)
	require.NoError(t, err)
	attempts := make([]advisory.Attempt, n)
	for i := range attempts {
		lock, err := locker.Lock(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
		attempts[i] = advisory.Attempt{Keys: lock.Keys(), Lock: lock}
	}
	return attempts
}

// ends are the ways in which a hold ends.
var ends = map[string]struct {
	err       error
	outcome   string
	reason    string
	errorType string
}{
	"unlocked": {outcome: "unlocked"},
	"terminated": {
		err:     &advisory.LostError{Reason: advisory.LostTerminated, Cause: &pgconn.PgError{Code: "57P01"}},
		outcome: "lost", reason: "terminated", errorType: "57P01",
	},
	"disconnected": {
		err:     &advisory.LostError{Reason: advisory.LostDisconnected, Cause: errNetwork},
		outcome: "lost", reason: "disconnected", errorType: "disconnected",
	},
	"unresponsive": {
		err:     fmt.Errorf("wrapped: %w", &advisory.LostError{Reason: advisory.LostUnresponsive, Cause: errNetwork}),
		outcome: "lost", reason: "unresponsive", errorType: "unresponsive",
	},
	"not held": {
		err:     &advisory.LostError{Reason: advisory.LostNotHeld, Cause: advisory.ErrNotOwner},
		outcome: "lost", reason: "not held", errorType: "not held",
	},
	"unlock refused": {
		err: &pgconn.PgError{Code: "57014"}, outcome: "error", errorType: "57014",
	},
	"unlock refused for no stated reason": {
		err: errors.New("refused"), outcome: "error", errorType: "_OTHER",
	},
}

func TestEnded_reportsHowTheHoldEnded(t *testing.T) {
	t.Parallel()
	for name, e := range ends {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			a := grants(t, 1)[0]
			b.observer.Attempted(t.Context(), a)
			require.Contains(t, b.values(t), "pgadvisory.lock.held exclusive: 1")
			require.Equal(t, 1, b.observer.Open())
			b.observer.Ended(advisory.End{Lock: a.Lock, Held: time.Hour, Err: e.err})
			require.Zero(t, b.observer.Open())

			want := []string{
				"pgadvisory.lock.hold.duration exclusive " + e.outcome + ": 1",
				"pgadvisory.lock.wait.duration exclusive granted: 1",
			}
			if e.reason != "" {
				want = append(want[:1:1], "pgadvisory.lock.lost "+e.reason+": 1", want[1])
			}
			require.Equal(t, want, b.values(t))

			span := b.ended(t, "pgadvisory.hold")
			require.Equal(t, time.Hour, span.EndTime().Sub(span.StartTime()))
			require.Equal(t, e.outcome, attributes(span)["pgadvisory.lock.outcome"])
			require.Equal(t, e.reason, attributes(span)["pgadvisory.lost.reason"])
			require.Equal(t, e.errorType, attributes(span)["error.type"])
			if e.err == nil {
				require.Equal(t, codes.Unset, span.Status().Code)
			} else {
				require.Equal(t, codes.Error, span.Status().Code)
				require.Equal(t, e.err.Error(), span.Status().Description)
			}
		})
	}
}

func TestObserver_makesTheHoldASiblingOfTheWaitAndLinksThem(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, caller := b.tracers.Tracer("test").Start(t.Context(), "caller")
	a := grants(t, 1)[0]
	b.observer.Attempted(ctx, a)
	caller.End() // long before the hold
	b.observer.Ended(advisory.End{Lock: a.Lock, Held: time.Second})

	wait, hold := b.ended(t, "pgadvisory.lock"), b.ended(t, "pgadvisory.hold")
	require.Equal(t, caller.SpanContext().SpanID(), wait.Parent().SpanID())
	require.Equal(t, caller.SpanContext().SpanID(), hold.Parent().SpanID())
	require.Equal(t, wait.EndTime(), hold.StartTime())
	require.Equal(t, trace.SpanKindInternal, hold.SpanKind())
	require.Len(t, hold.Links(), 1)
	require.Equal(t, wait.SpanContext().SpanID(), hold.Links()[0].SpanContext.SpanID())
}

func TestObserver_isNotConfusedWhenALockIsLostBeforeItsCallIsToldOf(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a := grants(t, 1)[0]
	a.Shared = true
	b.observer.Ended(advisory.End{Lock: a.Lock, Held: time.Millisecond, Err: ends["disconnected"].err})
	require.Empty(t, b.values(t))
	b.observer.Attempted(t.Context(), a)

	require.Zero(t, b.observer.Open())
	require.Equal(t, []string{
		"pgadvisory.lock.hold.duration shared lost: 1",
		"pgadvisory.lock.lost disconnected: 1",
		"pgadvisory.lock.wait.duration shared granted: 1",
	}, b.values(t))
	require.Equal(t, "disconnected", attributes(b.ended(t, "pgadvisory.hold"))["error.type"])
}

func TestObserver_keepsNothingOfLocksThatHaveEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const locks = 100
	var calls sync.WaitGroup
	for _, a := range grants(t, locks) {
		calls.Go(func() { b.observer.Attempted(t.Context(), a) })
		calls.Go(func() { b.observer.Ended(advisory.End{Lock: a.Lock, Held: time.Second}) })
	}
	calls.Wait()

	require.Zero(t, b.observer.Open())
	require.Equal(t, []string{
		fmt.Sprintf("pgadvisory.lock.hold.duration exclusive unlocked: %d", locks),
		fmt.Sprintf("pgadvisory.lock.wait.duration exclusive granted: %d", locks),
	}, b.values(t))
	require.Len(t, b.spans.Ended(), 2*locks)
}
