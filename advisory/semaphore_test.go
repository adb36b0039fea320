package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func TestSemaphore_admitsAsManyAsItsLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(6))
	_, other := b.another(t, nil, maxConns(6))
	var locks []*advisory.Lock
	slots := map[advisory.Key]bool{}
	for i := range 3 {
		locker := []*advisory.Locker{b.locker, other}[i%2]
		lock, err := locker.Semaphore("workers", 3).TryAcquire(t.Context())
		require.NoError(t, err)
		locks = append(locks, lock)
		slots[lock.Keys()[0]] = true
		require.Equal(t, "lock workers", scan[string](t, b, "SELECT application_name FROM pg_stat_activity WHERE pid = $1", int(lock.BackendPID())))
	}
	require.Equal(t, map[advisory.Key]bool{
		advisory.Name("semaphore:workers:0"): true, advisory.Name("semaphore:workers:1"): true, advisory.Name("semaphore:workers:2"): true,
	}, slots)
	for _, locker := range []*advisory.Locker{b.locker, other} {
		_, err := locker.Semaphore("workers", 3).TryAcquire(t.Context())
		require.ErrorIs(t, err, advisory.ErrNotAcquired)
	}
	free, err := b.locker.Semaphore("others", 1).TryAcquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, free.Unlock(t.Context()))

	require.NoError(t, locks[1].Unlock(t.Context()))
	again, err := b.locker.Semaphore("workers", 3).TryAcquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, locks[1].Keys(), again.Keys())
	for _, lock := range []*advisory.Lock{locks[0], locks[2], again} {
		require.NoError(t, lock.Unlock(t.Context()))
	}
	b.leakCheck(t)
}

func TestSemaphore_waitersFollow(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(8))
	s := b.locker.Semaphore("workers", 2)
	var holders, most counter
	var wg sync.WaitGroup
	_, other := b.another(t, nil, maxConns(4))
	for _, s := range []*advisory.Semaphore{s, s, s, other.Semaphore("workers", 2), other.Semaphore("workers", 2)} {
		wg.Go(func() {
			for range 20 {
				lock, err := s.Acquire(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				n := holders.add(1)
				if n > 2 {
					t.Errorf("%d hold at once", n)
				}
				most.mu.Lock()
				most.n = max(most.n, n)
				most.mu.Unlock()
				holders.add(-1)
				if err := lock.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	b.leakCheck(t)
}

func TestSemaphore_waitIsEndedByCtx(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(4))
	s := b.locker.Semaphore("workers", 1)
	lock, err := s.Acquire(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := s.Acquire(ctx)
		got <- err
	}()
	b.eventually(t, "it waits on the server", func() bool { return b.waiting(t) == 1 })
	cancel()
	require.ErrorIs(t, <-got, context.Canceled)
	b.eventually(t, "only the holder's slot and announcement are left", func() bool { return b.granted(t) == 2 && b.waiting(t) == 0 })
	require.NoError(t, lock.Unlock(t.Context()))
	b.leakCheck(t)
}

func TestSemaphore_crashedHolderFreesItsSlot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.locker.Semaphore("workers", 1)
	lock, err := s.TryAcquire(t.Context())
	require.NoError(t, err)
	b.terminate(t, lock.BackendPID())
	next, err := s.Acquire(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, lock.Err(), advisory.ErrLost)
	require.NoError(t, next.Unlock(t.Context()))
	b.leakCheck(t)
}

func TestSemaphore_refusesAnotherLimit(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(6))
	three := b.locker.Semaphore("workers", 3)
	lock, err := three.TryAcquire(t.Context())
	require.NoError(t, err)
	_, other := b.another(t, nil)
	for _, locker := range []*advisory.Locker{b.locker, other} {
		for _, acquire := range []func(context.Context) (*advisory.Lock, error){
			locker.Semaphore("workers", 4).TryAcquire, locker.Semaphore("workers", 4).Acquire,
		} {
			_, err := acquire(t.Context())
			require.ErrorIs(t, err, advisory.ErrLimitDiffers)
			require.ErrorContains(t, err, "this one is 4, and another holds or waits with 3")
		}
	}
	require.NoError(t, lock.Unlock(t.Context()))
	b.noLockLeft(t)
	lock, err = b.locker.Semaphore("workers", 4).TryAcquire(t.Context())
	require.NoError(t, err, "nobody uses the old one")
	require.NoError(t, lock.Unlock(t.Context()))

	for _, limit := range []int{0, -1, advisory.MaxSlots + 1} {
		_, err := b.locker.Semaphore("workers", limit).Acquire(t.Context())
		require.ErrorContains(t, err, fmt.Sprintf("the limit is %d", limit))
	}
	_, err = b.locker.Semaphore("", 1).TryAcquire(t.Context())
	require.ErrorIs(t, err, advisory.ErrInvalidKey)
}

// Two who come at the same time with different limits never both get in.
func TestSemaphore_limitsRace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, other := b.another(t, nil)
	for range 50 {
		var got [2]*advisory.Lock
		var wg sync.WaitGroup
		for i, locker := range []*advisory.Locker{b.locker, other} {
			wg.Go(func() {
				var err error
				got[i], err = locker.Semaphore("workers", i+1).TryAcquire(context.Background())
				if err != nil && !errors.Is(err, advisory.ErrLimitDiffers) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.False(t, got[0] != nil && got[1] != nil)
		for _, lock := range got {
			if lock != nil {
				require.NoError(t, lock.Unlock(t.Context()))
			}
		}
		b.noLockLeft(t)
	}
}

func TestSemaphore_manySlots(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.locker.Semaphore("many", advisory.MaxSlots)
	lock, err := s.TryAcquire(t.Context())
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
	b.leakCheck(t)
}

// The slot comes when its caller has left, on a session that has to be met anew.
func TestSemaphore_slotThatNobodyWantsAnyMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool, locker := b.another(t, nil, maxConns(2))
	held, err := b.locker.Semaphore("slots", 1).TryAcquire(t.Context())
	require.NoError(t, err)
	lock, err := locker.TryLock(t.Context(), advisory.ID(9)) // meets the connection
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
	c, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	exec(t, c.Conn(), "RESET ALL")
	c.Release()

	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := locker.Semaphore("slots", 1).Acquire(ctx)
		left <- err
	}()
	b.eventually(t, "it waits", func() bool { return b.waiting(t) == 1 })
	cancel()
	require.ErrorIs(t, <-left, context.Canceled)
	require.NoError(t, held.Unlock(t.Context()))
	b.eventually(t, "the connection is back", func() bool { return pool.Stat().AcquiredConns() == 0 })
	require.Zero(t, b.granted(t))
	require.EqualValues(t, 1, pool.Stat().NewConnsCount())
}
