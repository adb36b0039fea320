package advisory_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func TestLock_servesTheCallsOfOneLockerInOrder(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(4)) // three for locks, one in reserve
	key := advisory.Name("queue")
	holder := b.session(t)
	exec(t, holder, "SELECT pg_advisory_lock(hashtextextended('queue', 0))")

	const n = 1000
	order := make(chan int, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			lock, err := b.locker.Lock(context.Background(), key)
			if err != nil {
				t.Error(err)
				return
			}
			order <- i
			if err := lock.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
		})
		for advisory.Waiting(b.locker, key) != i+1 { // the calls of eventually would add up
			runtime.Gosched()
			require.NoError(t, t.Context().Err())
		}
	}
	b.eventually(t, "they wait on the server", func() bool { return b.waiting(t) == 1 })
	require.EqualValues(t, 1, b.pool.Stat().AcquiredConns(), "all on one connection")
	for i := range 2 { // and the reserve is kept
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(int64(i)))
		require.NoError(t, err)
		defer func() { require.NoError(t, lock.Unlock(context.Background())) }()
	}
	_, err := b.locker.TryLock(t.Context(), advisory.ID(2))
	require.ErrorIs(t, err, advisory.ErrPoolExhausted)
	require.NoError(t, b.pool.Ping(t.Context()))
	exec(t, holder, "SELECT pg_advisory_unlock_all()")
	wg.Wait()
	close(order)
	want := 0
	for got := range order {
		require.Equal(t, want, got)
		want++
	}
	require.Equal(t, n, want)
}

func TestLock_whoeverLeavesTheLineDelaysNobody(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	key := advisory.ID(7)
	first, err := b.locker.TryLock(t.Context(), key)
	require.NoError(t, err)

	const n = 30
	var cancels [n]context.CancelFunc
	results := make([]chan error, n)
	locks := make(chan *advisory.Lock, n)
	for i := range n {
		var ctx context.Context
		ctx, cancels[i] = context.WithCancel(t.Context())
		defer cancels[i]()
		results[i] = make(chan error, 1)
		go func() {
			lock, err := b.locker.Lock(ctx, key)
			results[i] <- err
			if err == nil {
				locks <- lock
			}
		}()
		b.eventually(t, "it is in the queue", func() bool { return advisory.Waiting(b.locker, key) == i+1 })
	}
	for i := range n { // all but each third leave
		if i%3 != 0 {
			cancels[i]()
			require.ErrorIs(t, <-results[i], context.Canceled)
		}
	}
	require.NoError(t, first.Unlock(t.Context()))
	for i := range n {
		if i%3 == 0 {
			require.NoError(t, <-results[i])
			require.NoError(t, (<-locks).Unlock(t.Context()))
		}
	}
	b.leakCheck(t)
}

// Field case 14: a pool of two, one key, many goroutines.
func TestLock_eightHundredCyclesOnAPoolOfTwo(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	var holders counter
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				lock, err := b.locker.Lock(context.Background(), advisory.Name("case 14"))
				if err != nil {
					t.Error(err)
					return
				}
				if n := holders.add(1); n != 1 {
					t.Errorf("%d hold at once", n)
				}
				holders.add(-1)
				if err := lock.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, b.granted(t))
	require.Zero(t, b.pool.Stat().AcquiredConns())
}

func TestLock_sharedByLockersOfSeveralPools(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var holders counter
	var wg sync.WaitGroup
	for range 4 {
		_, locker := b.another(t, nil, maxConns(2))
		for range 2 {
			wg.Go(func() {
				for range 25 {
					err := locker.Do(context.Background(), advisory.ID(7), func(context.Context, *advisory.Lock) error {
						if n := holders.add(1); n != 1 {
							t.Errorf("%d hold at once", n)
						}
						holders.add(-1)
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	b.noLockLeft(t)
}

// Case 106: who unlocks and asks again at once does not starve another process.
func TestLock_greedyHolderLetsOthersIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, polite := b.another(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	greedy := make(chan error, 1)
	go func() {
		for {
			lock, err := b.locker.Lock(ctx, advisory.ID(7))
			if err != nil {
				greedy <- err
				return
			}
			if err := lock.Unlock(ctx); err != nil {
				greedy <- err
				return
			}
		}
	}()
	for range 5 {
		lock, err := polite.Lock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	}
	cancel()
	require.ErrorIs(t, <-greedy, context.Canceled)
	b.noLockLeft(t)
}

func TestLock_nextInLineGoesOnWhenTheHolderIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	first, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	got := make(chan *advisory.Lock, 1)
	go func() {
		lock, err := b.locker.Lock(context.Background(), advisory.ID(7))
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	b.eventually(t, "it is in the queue", func() bool { return advisory.Waiting(b.locker, advisory.ID(7)) == 1 })
	b.terminate(t, first.BackendPID())
	second := <-got
	require.NotEqual(t, first.BackendPID(), second.BackendPID())
	require.ErrorIs(t, first.Err(), advisory.ErrLost)
	require.NoError(t, second.Err())
	require.NoError(t, second.Unlock(t.Context()))
	b.leakCheck(t)
}
