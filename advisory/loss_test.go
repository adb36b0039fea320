package advisory_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
	"github.com/pgadvisory/pgadvisory/internal/stopwatch"
)

// noticed returns how long it takes from now until the loss of the lock is
// noticed, without the time in which this process could not run.
func noticed(t *testing.T, lock *advisory.Lock) time.Duration {
	t.Helper()
	w := stopwatch.Start()
	defer w.Stop()
	select {
	case <-lock.Done():
		return w.Net()
	case <-time.After(patience):
		require.FailNow(t, "the loss was not noticed", "within %s", patience)
		return 0
	}
}

// fastest measures up to three times, until it is fast enough: other tests run at
// the same time, and a bound on what the library takes must not be one on them.
func fastest(t *testing.T, limit time.Duration, measure func() time.Duration) {
	t.Helper()
	best := time.Hour
	for range 3 {
		if best = min(best, measure()); best < limit {
			return
		}
	}
	require.Less(t, best, limit)
}

func TestLoss_terminatedBackend(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fastest(t, 100*time.Millisecond, func() time.Duration {
		lock, err := b.locker.TryLock(t.Context(), advisory.Name("case 27"))
		require.NoError(t, err)
		ctx, cancel := lock.Context(t.Context())
		defer cancel()
		b.terminate(t, lock.BackendPID())
		took := noticed(t, lock)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), advisory.ErrLost)

		var lost *advisory.LostError
		require.ErrorAs(t, lock.Err(), &lost)
		require.Equal(t, advisory.LostTerminated, lost.Reason)
		require.Equal(t, []advisory.Key{advisory.Name("case 27")}, lost.Keys)
		var pgErr *pgconn.PgError
		require.ErrorAs(t, lost, &pgErr)
		require.Equal(t, "57P01", pgErr.Code)
		b.leakCheck(t)
		require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost, "Unlock tells, too")
		return took
	})
}

func TestLoss_isTellingApartHowTheConnectionEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const heartbeat, timeout = 300 * time.Millisecond, 4 * time.Second
	config := &advisory.Config{Heartbeat: heartbeat, HeartbeatTimeout: timeout}
	for _, c := range []struct { // case 34
		name   string
		fault  func(*faultproxy.Proxy)
		reason advisory.LostReason
		limit  time.Duration
	}{
		{"FIN", (*faultproxy.Proxy).Cut, advisory.LostDisconnected, 100 * time.Millisecond},
		{"RST", (*faultproxy.Proxy).Reset, advisory.LostDisconnected, 100 * time.Millisecond},
		{"half-open", (*faultproxy.Proxy).Swallow, advisory.LostUnresponsive, (heartbeat + timeout) * 11 / 10},
	} {
		fastest(t, c.limit, func() time.Duration {
			proxy := b.proxy(t)
			pool, locker := b.another(t, config, through(proxy))
			lock, err := locker.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err)
			c.fault(proxy.Proxy)
			took := noticed(t, lock)
			var lost *advisory.LostError
			require.ErrorAs(t, lock.Err(), &lost, c.name)
			require.Equal(t, c.reason, lost.Reason, c.name)
			b.eventually(t, "the pool is rid of it", func() bool { return pool.Stat().AcquiredConns() == 0 })
			if c.reason == advisory.LostUnresponsive {
				b.terminate(t, lock.BackendPID()) // the server does not know yet
			}
			b.noLockLeft(t)
			return took
		})
	}
}

// A heartbeat neither takes the lock once more, nor leaves the session active,
// nor ends a healthy hold.
func TestLoss_heartbeatsLeaveTheLockAsItIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, locker := b.another(t, &advisory.Config{Heartbeat: time.Millisecond})
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	beats := func() string {
		return scan[string](t, b, "SELECT query || ' ' || coalesce(query_start::text, '') FROM pg_stat_activity WHERE pid = $1", int(lock.BackendPID()))
	}
	for range 20 {
		last := beats()
		b.eventually(t, "one more heartbeat", func() bool { return beats() != last })
	}
	b.eventually(t, "idle, without a snapshot", func() bool { // case 35
		return scan[bool](t, b, "SELECT state = 'idle' AND backend_xmin IS NULL FROM pg_stat_activity WHERE pid = $1", int(lock.BackendPID()))
	})
	require.Equal(t, 1, b.granted(t))
	require.NoError(t, lock.Err())
	require.NoError(t, lock.Unlock(t.Context()), "case 77: one unlock, and it races with heartbeats")
	require.Zero(t, b.granted(t))
}

func TestLoss_unlockRacesWithHeartbeats(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool, locker := b.another(t, &advisory.Config{Heartbeat: time.Nanosecond}, maxConns(2))
	for range 300 {
		lock, err := locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	}
	require.Zero(t, b.granted(t))
	require.EqualValues(t, 1, pool.Stat().NewConnsCount())
}

func TestLoss_unlockRacesWithTheEndOfTheSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 50 {
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		terminated := make(chan struct{})
		go func() {
			defer close(terminated)
			if _, err := b.raw.Exec(context.Background(), "SELECT pg_terminate_backend($1)", int(lock.BackendPID())); err != nil {
				t.Error(err)
			}
		}()
		if err := lock.Unlock(t.Context()); err != nil {
			require.ErrorIs(t, err, advisory.ErrLost)
		}
		<-terminated
		require.True(t, isClosed(lock.Done()))
		b.noLockLeft(t)
	}
	b.leakCheck(t)
}

// Case 29: all who hold are told, and nothing is taken again behind their back.
func TestLoss_everyHolderIsTold(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(21))
	var locks []*advisory.Lock
	for i := range 20 {
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(int64(i)))
		require.NoError(t, err)
		locks = append(locks, lock)
	}
	scan[int](t, b, "SELECT count(pg_terminate_backend(pid)) "+advisoryLocks)
	for _, lock := range locks {
		noticed(t, lock)
		require.ErrorIs(t, lock.Err(), advisory.ErrLost)
	}
	b.leakCheck(t)
}

// Case 30: what was lost stays lost, even if nobody else wanted it.
func TestLoss_isForGood(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	b.terminate(t, first.BackendPID())
	<-first.Done()
	b.noLockLeft(t)
	second, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.ErrorIs(t, first.Err(), advisory.ErrLost)
	require.ErrorIs(t, first.Unlock(t.Context()), advisory.ErrLost)
	require.NoError(t, second.Err(), "case 38: the first one's end is not the second one's")
	require.True(t, b.isHeldBy(t, 7, second.BackendPID()))
}

func TestLockContext_endsWithParentCancelAndUnlock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)

	reason := errors.New("parent")
	parent, cancelParent := context.WithCancelCause(t.Context())
	ofParent, cancel1 := lock.Context(parent)
	defer cancel1()
	own, cancel2 := lock.Context(t.Context())
	ofLock, cancel3 := lock.Context(t.Context())
	defer cancel3()

	cancelParent(reason)
	<-ofParent.Done()
	require.ErrorIs(t, context.Cause(ofParent), reason)
	cancel2()
	require.ErrorIs(t, own.Err(), context.Canceled)
	require.NoError(t, ofLock.Err())
	require.NoError(t, lock.Err())

	require.NoError(t, lock.Unlock(t.Context()))
	<-ofLock.Done()
	require.ErrorIs(t, context.Cause(ofLock), advisory.ErrUnlocked)
	late, cancel4 := lock.Context(t.Context())
	defer cancel4()
	<-late.Done()
	require.ErrorIs(t, context.Cause(late), advisory.ErrUnlocked)
}
