package otel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/otel"
)

// An alert on an increase sees the first one only of a counter that was there before.
func TestCounts_areThereFromTheStart(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{
		"pgadvisory.lock.held exclusive: 0",
		"pgadvisory.lock.held semaphore: 0",
		"pgadvisory.lock.held shared: 0",
		"pgadvisory.lock.lost disconnected: 0",
		"pgadvisory.lock.lost not held: 0",
		"pgadvisory.lock.lost terminated: 0",
		"pgadvisory.lock.lost unresponsive: 0",
		"pgadvisory.lock.waiting exclusive: 0",
		"pgadvisory.lock.waiting semaphore: 0",
		"pgadvisory.lock.waiting shared: 0",
		"pgadvisory.write.refused stale: 0",
		"pgadvisory.write.refused unknown_token: 0",
		"pgadvisory.write.refused unstamped: 0",
	}, setup(t).allValues(t))
}

// Not parallel: the first global provider is set once in a process.
func TestCounts_ofAProviderThatIsSetWhileALockIsHeld(t *testing.T) {
	observer, err := otel.NewObserver(nil)
	require.NoError(t, err)
	a := grants(t, 1)[0]
	observer.Attempted(t.Context(), a)

	b := &bundle{reader: metric.NewManualReader()}
	global.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(b.reader)))
	require.Equal(t, []string{"pgadvisory.lock.held exclusive: 1"}, b.values(t))
	require.Contains(t, b.allValues(t), "pgadvisory.lock.lost terminated: 0")
	observer.Ended(advisory.End{Lock: a.Lock, Held: time.Second})
	require.Contains(t, b.allValues(t), "pgadvisory.lock.held exclusive: 0")
}

// Each Locker may have an Observer of its own.
func TestCounts_ofTwoObserversAreAdded(t *testing.T) {
	t.Parallel()
	b := &bundle{reader: metric.NewManualReader()}
	provider := metric.NewMeterProvider(metric.WithReader(b.reader))
	for _, a := range grants(t, 2) {
		observer, err := otel.NewObserver(&otel.Config{MeterProvider: provider})
		require.NoError(t, err)
		observer.Attempted(t.Context(), a)
	}
	require.Contains(t, b.values(t), "pgadvisory.lock.held exclusive: 2")
}

func TestServer_aWaitInProgress(t *testing.T) {
	t.Parallel()
	s := serve(t)
	conn := s.db.Conn(t)
	_, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock(7)")
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() {
		_, err := s.locker.RLock(t.Context(), advisory.ID(7))
		got <- err
	}()
	require.Eventually(t, func() bool {
		return len(s.values(t)) == 1 && s.values(t)[0] == "pgadvisory.lock.waiting shared: 1"
	}, time.Minute, time.Millisecond)
	_, err = conn.Exec(t.Context(), "SELECT pg_advisory_unlock(7)")
	require.NoError(t, err)
	require.NoError(t, <-got)
	require.Equal(t, []string{
		"pgadvisory.lock.held shared: 1", "pgadvisory.lock.wait.duration shared granted: 1",
	}, s.values(t))
}

func TestServer_aSemaphore(t *testing.T) {
	t.Parallel()
	s := serve(t)
	lock, err := s.locker.Semaphore("workers", 1).Acquire(t.Context())
	require.NoError(t, err)
	_, err = s.locker.Semaphore("workers", 1).TryAcquire(t.Context())
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.Equal(t, []string{
		"pgadvisory.lock.held semaphore: 1",
		"pgadvisory.lock.wait.duration semaphore granted: 1",
		"pgadvisory.lock.wait.duration semaphore not_acquired: 1",
	}, s.values(t))
	require.NoError(t, lock.Unlock(t.Context()))

	slot := `["\"semaphore:workers:0\" (` + number(t, s.db, "semaphore:workers:0") + `)"]`
	hold := attributes(s.ended(t, "pgadvisory.hold"))
	require.Equal(t, "workers", hold["pgadvisory.lock.semaphore"])
	require.Equal(t, slot, hold["pgadvisory.lock.keys"], "the lock that is in pg_locks")
	require.Equal(t, "semaphore", hold["pgadvisory.lock.mode"])
	for _, span := range s.spans.Ended() {
		has := attributes(span)
		if has["pgadvisory.lock.outcome"] == "not_acquired" {
			require.Equal(t, "workers", has["pgadvisory.lock.semaphore"])
			require.NotContains(t, has, "pgadvisory.lock.keys")
		}
	}
}

func TestServer_aLeaderWithItsToken(t *testing.T) {
	t.Parallel()
	s := serve(t)
	fencer, err := fencing.New(s.locker, &fencing.Config{Observer: s.observer})
	require.NoError(t, err)
	leading := `pgadvisory.lead.terms "scheduler" (` + number(t, s.db, "scheduler") + "): 1"
	require.NoError(t, fencer.Lead(t.Context(), "scheduler", func(context.Context, *fencing.Lease) error {
		require.Contains(t, s.values(t), leading)
		require.Contains(t, s.values(t), "pgadvisory.lock.held exclusive: 1")
		return nil
	}))
	require.Equal(t, []string{
		"pgadvisory.lock.hold.duration exclusive unlocked: 1",
		"pgadvisory.lock.wait.duration exclusive granted: 1",
	}, s.values(t))
	require.NotContains(t, strings.Join(s.allValues(t), "\n"), "pgadvisory.lead")
	for _, name := range []string{"pgadvisory.lock", "pgadvisory.hold"} {
		has := attributes(s.ended(t, name))
		require.Equal(t, "true", has["pgadvisory.lock.lead"])
		require.Equal(t, "1", has["pgadvisory.lock.token"])
	}
}

func TestServer_aWriteThatIsRefused(t *testing.T) {
	t.Parallel()
	s := serve(t)
	pool := s.db.Pool(t)
	fencer, err := fencing.New(s.locker, &fencing.Config{Observer: s.observer})
	require.NoError(t, err)
	_, err = pool.Exec(t.Context(), "CREATE TABLE exports (id int)")
	require.NoError(t, err)
	require.NoError(t, fencing.Guard(t.Context(), pool, "exports", "nightly"))
	old, err := fencer.Lock(t.Context(), "nightly")
	require.NoError(t, err)
	require.NoError(t, old.Unlock(t.Context()))
	current, err := fencer.Lock(t.Context(), "nightly")
	require.NoError(t, err)
	insert := func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO exports VALUES (1)")
		return err
	}

	ctx, caller := s.tracers.Tracer("test").Start(t.Context(), "caller")
	require.ErrorIs(t, old.InTx(ctx, pool, insert), fencing.ErrStale)
	caller.End()
	_, err = old.Exec(t.Context(), pool, "INSERT INTO exports VALUES (1)")
	require.ErrorIs(t, err, fencing.ErrStale)
	require.NoError(t, current.InTx(t.Context(), pool, insert))
	failure := errors.New("of the work")
	require.ErrorIs(t, current.InTx(t.Context(), pool, func(pgx.Tx) error { return failure }), failure)
	other, err := fencer.Lock(t.Context(), "other")
	require.NoError(t, err)
	require.ErrorIs(t, other.InTx(t.Context(), s.db.Conn(t), insert), fencing.ErrUnstamped)

	require.Subset(t, s.values(t), []string{"pgadvisory.write.refused stale: 2", "pgadvisory.write.refused unstamped: 1"})
	events := s.ended(t, "caller").Events()
	require.Len(t, events, 1)
	require.Equal(t, "pgadvisory.write.refused", events[0].Name)
	has := make(map[string]string)
	for _, a := range events[0].Attributes {
		has[string(a.Key)] = a.Value.String()
	}
	require.Equal(t, map[string]string{
		"pgadvisory.write.refusal": "stale", "pgadvisory.write.resource": "nightly", "pgadvisory.lock.token": "1",
	}, has)
	require.NoError(t, fencing.Unguard(t.Context(), pool, "exports"))
}
