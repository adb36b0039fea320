package advisory_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func ids(n ...int64) []advisory.Key {
	keys := make([]advisory.Key, len(n))
	for i, id := range n {
		keys[i] = advisory.ID(id)
	}
	return keys
}

func TestLockAll_holdsAllOnOneSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	// Cases 75 and 92: what is the same lock is locked once.
	id := scan[int64](t, b, "SELECT hashtextextended('b', 0)")
	keys := []advisory.Key{
		advisory.ID(2), advisory.Name("b"), advisory.ID(2), advisory.ID(id), advisory.Pair(0, 2), advisory.Pair(-1, -2), advisory.ID(-1 << 63),
	}
	for _, lockAll := range []func(context.Context, ...advisory.Key) (*advisory.Lock, error){b.locker.LockAll, b.locker.TryLockAll} {
		lock, err := lockAll(t.Context(), keys...)
		require.NoError(t, err)
		require.Equal(t, keys, lock.Keys())
		require.Equal(t, 5, b.granted(t))
		require.Equal(t, []int{int(lock.BackendPID())}, scan[[]int](t, b, "SELECT array_agg(DISTINCT pid) "+advisoryLocks))
		for _, k := range keys {
			require.False(t, scan[bool](t, b, "SELECT pg_try_advisory_lock("+k.SQL()+")"), k)
			_, err := b.locker.TryLock(t.Context(), k)
			require.ErrorIs(t, err, advisory.ErrNotAcquired)
		}
		require.NoError(t, lock.Unlock(t.Context()))
		b.leakCheck(t)
	}
}

func TestTryLockAll_takesAllOrNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.session(t), "SELECT pg_advisory_lock(3)")
	_, err := b.locker.TryLockAll(t.Context(), ids(1, 2, 3, 4, 5)...)
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.Equal(t, 1, b.granted(t))

	lock, err := b.locker.TryLock(t.Context(), advisory.ID(2))
	require.NoError(t, err)
	before := b.pool.Stat().AcquireCount()
	_, err = b.locker.TryLockAll(t.Context(), ids(1, 2)...)
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.Equal(t, before, b.pool.Stat().AcquireCount(), "what the Locker holds it knows without a round trip")
	require.NoError(t, lock.Unlock(t.Context()))
	lock, err = b.locker.TryLockAll(t.Context(), ids(1, 2)...)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
	require.Zero(t, b.pool.Stat().AcquiredConns())
}

func TestLockAll_waitsForEachAndLeavesNothingWhenCancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.session(t)
	exec(t, holder, "SELECT pg_advisory_lock(3)")
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := b.locker.LockAll(ctx, ids(5, 4, 3, 2, 1)...)
		got <- err
	}()
	b.eventually(t, "it has those before the third and waits for that", func() bool {
		return b.granted(t) == 3 && b.waiting(t) == 1
	})
	cancel() // case 93
	require.ErrorIs(t, <-got, context.Canceled)
	b.eventually(t, "nothing is left", func() bool { return b.granted(t) == 1 && b.waiting(t) == 0 })

	locks := make(chan *advisory.Lock, 1)
	go func() {
		lock, err := b.locker.LockAll(context.Background(), ids(1, 2, 3, 4, 5)...)
		if err != nil {
			t.Error(err)
		}
		locks <- lock
	}()
	b.eventually(t, "it waits", func() bool { return b.granted(t) == 3 && b.waiting(t) == 1 })
	exec(t, holder, "SELECT pg_sleep($1)", (2 * advisory.Slice).Seconds())
	exec(t, holder, "SELECT pg_advisory_unlock(3)")
	lock := <-locks
	require.Equal(t, 5, b.granted(t))
	require.NoError(t, lock.Unlock(t.Context()))
	b.leakCheck(t)
}

// Case 88: any order of the arguments, no deadlock.
func TestLockAll_inAnyOrderDoesNotDeadlock(t *testing.T) {
	t.Parallel()
	b := setupWith(t, pgtest.ReadableLog)
	_, other := b.another(t, nil, maxConns(3))
	var held [4]counter
	var wg sync.WaitGroup
	for range 2 {
		for _, locker := range []*advisory.Locker{b.locker, other} {
			wg.Go(func() {
				for range 60 {
					order := rand.Perm(4)[:2+rand.N(3)]
					var keys []advisory.Key
					for _, i := range order {
						keys = append(keys, advisory.ID(int64(i)))
					}
					lock, err := locker.LockAll(context.Background(), keys...)
					if err != nil {
						t.Error(err)
						return
					}
					for _, i := range order {
						if n := held[i].add(1); n != 1 {
							t.Errorf("%d hold %d at once", n, i)
						}
					}
					for _, i := range order {
						held[i].add(-1)
					}
					if err := lock.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	b.leakCheck(t)
	require.NotContains(t, b.db.Log(t), "deadlock")
}

func TestLockAll_sharesTheLinesWithLock(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(3))
	single, err := b.locker.Lock(t.Context(), advisory.ID(2))
	require.NoError(t, err)
	got := make(chan *advisory.Lock, 2)
	ask := func(f func() (*advisory.Lock, error), id int64, waiting int) {
		go func() {
			lock, err := f()
			if err != nil {
				t.Error(err)
			}
			got <- lock
		}()
		b.eventually(t, "it is in the queue", func() bool { return advisory.Waiting(b.locker, advisory.ID(id)) == waiting })
	}
	ask(func() (*advisory.Lock, error) { return b.locker.LockAll(context.Background(), ids(1, 2)...) }, 2, 1)
	ask(func() (*advisory.Lock, error) { return b.locker.Lock(context.Background(), advisory.ID(2)) }, 2, 2)
	require.EqualValues(t, 1, b.pool.Stat().AcquiredConns(), "they wait in memory")
	require.NoError(t, single.Unlock(t.Context()))
	all := <-got
	require.Len(t, all.Keys(), 2)
	require.NoError(t, all.Unlock(t.Context()))
	require.NoError(t, (<-got).Unlock(t.Context()))
	b.leakCheck(t)
}

func TestLockAll_isLostAndRefusedLikeALock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.locker.LockAll(t.Context())
	require.ErrorIs(t, err, advisory.ErrInvalidKey)
	_, err = b.locker.TryLockAll(t.Context(), advisory.ID(1), advisory.Name(""))
	require.ErrorIs(t, err, advisory.ErrInvalidKey)

	lock, err := b.locker.LockAll(t.Context(), ids(1, 2, 3)...)
	require.NoError(t, err)
	b.terminate(t, lock.BackendPID())
	<-lock.Done()
	require.ErrorIs(t, lock.Err(), advisory.ErrLost)
	require.ErrorContains(t, lock.Err(), "1 and 2 more")
	b.leakCheck(t)

	again, err := b.locker.LockAll(t.Context(), ids(1, 2, 3)...)
	require.NoError(t, err)
	waiter := make(chan error, 1)
	go func() {
		_, err := b.locker.LockAll(context.Background(), ids(3, 4)...)
		waiter <- err
	}()
	b.eventually(t, "it is in the queue", func() bool { return advisory.Waiting(b.locker, advisory.ID(3)) == 1 })
	require.NoError(t, b.locker.Close(t.Context()))
	require.ErrorIs(t, <-waiter, advisory.ErrClosed)
	require.ErrorIs(t, again.Unlock(t.Context()), advisory.ErrClosed)
	require.Zero(t, b.granted(t))
}

func TestClose_endsACallForSeveralLocksThatWaitsOnTheServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.session(t), "SELECT pg_advisory_lock(2)")
	waiter := make(chan error, 1)
	go func() {
		_, err := b.locker.LockAll(context.Background(), ids(1, 2)...)
		waiter <- err
	}()
	b.eventually(t, "it waits on the server", func() bool { return b.waiting(t) == 1 })
	require.NoError(t, b.locker.Close(t.Context()))
	require.ErrorIs(t, <-waiter, advisory.ErrClosed)
	require.Equal(t, 1, b.granted(t))
	require.Zero(t, b.pool.Stat().AcquiredConns())
}

// It takes no lock after one that is refused, not even for a moment.
func TestTryLockAll_stopsAtTheFirstThatIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.session(t), "SELECT pg_advisory_lock(1)")
	_, other := b.another(t, nil)
	keys := make([]advisory.Key, 50)
	for i := range keys {
		keys[i] = advisory.ID(int64(i + 1))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	work.Go(func() {
		for ctx.Err() == nil {
			if _, err := other.TryLockAll(context.Background(), keys...); !errors.Is(err, advisory.ErrNotAcquired) {
				t.Error(err)
			}
		}
	})
	for range 500 {
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(50))
		if err != nil {
			t.Error(err)
			break
		}
		require.NoError(t, lock.Unlock(t.Context()))
	}
	cancel()
	work.Wait()
}
