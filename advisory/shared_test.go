package advisory_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func TestRLock_isHeldByManyAndExcludesTheOthers(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(12))
	_, other := b.another(t, nil)
	for _, key := range []advisory.Key{advisory.ID(-7), advisory.Pair(7, -7)} {
		var readers []*advisory.Lock
		for range 3 {
			lock, err := b.locker.RLock(t.Context(), key)
			require.NoError(t, err)
			tried, err := b.locker.TryRLock(t.Context(), key)
			require.NoError(t, err)
			readers = append(readers, lock, tried)
		}
		require.Equal(t, 6, scan[int](t, b, "SELECT count(DISTINCT pid) "+advisoryLocks+" AND mode = 'ShareLock'"), "each on a session of its own")
		for _, l := range []*advisory.Locker{b.locker, other} {
			_, err := l.TryLock(t.Context(), key)
			require.ErrorIs(t, err, advisory.ErrNotAcquired)
		}
		foreign, err := other.TryRLock(t.Context(), key)
		require.NoError(t, err)
		require.NoError(t, foreign.Unlock(t.Context()))
		for _, lock := range readers {
			require.NoError(t, lock.Unlock(t.Context()))
		}
		require.Zero(t, b.granted(t))

		writer, err := b.locker.TryLock(t.Context(), key)
		require.NoError(t, err)
		for _, l := range []*advisory.Locker{b.locker, other} {
			_, err := l.TryRLock(t.Context(), key)
			require.ErrorIs(t, err, advisory.ErrNotAcquired)
		}
		require.NoError(t, writer.Unlock(t.Context()))
	}
	b.leakCheck(t)
}

func TestTryRLock_allWhoTryAtOnceGetIt(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(11))
	for range 5 {
		var wg sync.WaitGroup
		locks := make(chan *advisory.Lock, 10)
		for range 10 {
			wg.Go(func() {
				lock, err := b.locker.TryRLock(context.Background(), advisory.ID(7))
				if err != nil {
					t.Error(err)
					return
				}
				locks <- lock
			})
		}
		wg.Wait()
		close(locks)
		require.Equal(t, len(locks), b.granted(t))
		for lock := range locks {
			require.NoError(t, lock.Unlock(t.Context()))
		}
	}
	b.leakCheck(t)
}

// Readers who came after a writer wait behind it, so that it is not starved;
// those who follow each other are let in together.
func TestRLock_keepsItsPlaceBehindAWriter(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(6))
	key := advisory.ID(7)
	reader, err := b.locker.RLock(t.Context(), key)
	require.NoError(t, err)

	ask := func(lock func(context.Context, advisory.Key) (*advisory.Lock, error)) <-chan *advisory.Lock {
		before := advisory.Waiting(b.locker, key)
		got := make(chan *advisory.Lock, 1)
		go func() {
			k, err := lock(context.Background(), key)
			if err != nil {
				t.Error(err)
			}
			got <- k
		}()
		b.eventually(t, "it is in the queue", func() bool { return advisory.Waiting(b.locker, key) == before+1 })
		return got
	}
	writer := ask(b.locker.Lock)
	late1, late2 := ask(b.locker.RLock), ask(b.locker.RLock)
	_, err = b.locker.TryRLock(t.Context(), key)
	require.ErrorIs(t, err, advisory.ErrNotAcquired, "no barging either")
	require.EqualValues(t, 1, b.pool.Stat().AcquiredConns(), "they wait in memory")

	require.NoError(t, reader.Unlock(t.Context()))
	w := <-writer
	require.Empty(t, late1)
	require.Equal(t, 1, scan[int](t, b, "SELECT count(*) "+advisoryLocks+" AND mode = 'ExclusiveLock' AND granted"))
	require.NoError(t, w.Unlock(t.Context()))
	r1, r2 := <-late1, <-late2
	require.Equal(t, 2, scan[int](t, b, "SELECT count(*) "+advisoryLocks+" AND mode = 'ShareLock' AND granted"))
	require.NoError(t, r1.Unlock(t.Context()))
	require.NoError(t, r2.Unlock(t.Context()))
	b.leakCheck(t)
}

func TestRLock_waitsForAnotherSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.session(t)
	for _, key := range []advisory.Key{advisory.ID(7), advisory.Pair(-1, 7)} {
		exec(t, holder, "SELECT pg_advisory_lock("+key.SQL()+")")
		got := make(chan *advisory.Lock, 2)
		for range 2 {
			go func() {
				lock, err := b.locker.RLock(context.Background(), key)
				if err != nil {
					t.Error(err)
				}
				got <- lock
			}()
		}
		b.eventually(t, "they wait, on one connection", func() bool { return advisory.Waiting(b.locker, key) == 2 && b.waiting(t) == 1 })
		_, err := b.locker.TryRLock(t.Context(), key)
		require.ErrorIs(t, err, advisory.ErrNotAcquired)
		exec(t, holder, "SELECT pg_advisory_unlock("+key.SQL()+")")
		for range 2 {
			require.NoError(t, (<-got).Unlock(t.Context()))
		}
		b.leakCheck(t)
	}
}

// Case 91: two who hold in the shared mode can't wait each other out; their
// contexts end it.
func TestRLock_hasNoUpgrade(t *testing.T) {
	t.Parallel()
	b := setup(t)
	reader, err := b.locker.RLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := b.locker.Lock(ctx, advisory.ID(7))
		got <- err
	}()
	b.eventually(t, "it is in the queue", func() bool { return advisory.Waiting(b.locker, advisory.ID(7)) == 1 })
	cancel()
	err = <-got
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "which this process holds")
	require.NoError(t, reader.Unlock(t.Context()))
}

// What was granted in one mode is not given to who asks for the other: the first
// in the queue may leave while the server grants it.
func TestRLock_whatItLeavesIsNotAWriters(t *testing.T) {
	t.Parallel()
	for _, exclusiveFirst := range []bool{false, true} {
		b := setup(t)
		key := advisory.ID(7)
		first, second := b.locker.RLock, b.locker.Lock
		if exclusiveFirst {
			first, second = second, first
		}
		holder := b.session(t)
		exec(t, holder, "SELECT pg_advisory_lock(7)")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		gone := make(chan error, 1)
		go func() {
			_, err := first(ctx, key)
			gone <- err
		}()
		b.eventually(t, "it waits on the server", func() bool { return b.waiting(t) == 1 })
		got := make(chan *advisory.Lock, 1)
		go func() {
			lock, err := second(context.Background(), key)
			if err != nil {
				t.Error(err)
			}
			got <- lock
		}()
		b.eventually(t, "two are in the queue", func() bool { return advisory.Waiting(b.locker, key) == 2 && b.waiting(t) == 1 })
		cancel()
		require.ErrorIs(t, <-gone, context.Canceled)
		exec(t, holder, "SELECT pg_advisory_unlock(7)")
		lock := <-got
		mode := scan[string](t, b, "SELECT string_agg(mode, ' ') "+advisoryLocks+" AND granted")
		require.Equal(t, map[bool]string{false: "ExclusiveLock", true: "ShareLock"}[exclusiveFirst], mode)
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

// Who needs a connection that there isn't takes nobody along who needs none.
func TestRLock_wantOfAConnectionIsItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(3))
	key := advisory.ID(7)
	var readers []*advisory.Lock
	for range 2 {
		lock, err := b.locker.RLock(t.Context(), key)
		require.NoError(t, err)
		readers = append(readers, lock)
	}
	ask := func(ctx context.Context, lock func(context.Context, advisory.Key) (*advisory.Lock, error), place int) <-chan error {
		got := make(chan error, 1)
		go func() {
			k, err := lock(ctx, key)
			if err == nil {
				err = k.Unlock(context.Background())
			}
			got <- err
		}()
		b.eventually(t, "it is in the queue", func() bool { return advisory.Waiting(b.locker, key) == place })
		return got
	}
	ctx, leave := context.WithCancel(t.Context())
	first := ask(ctx, b.locker.Lock, 1)
	reader := ask(t.Context(), b.locker.RLock, 2)
	writer := ask(t.Context(), b.locker.Lock, 3)
	leave() // so that the reader behind it may, and finds no connection
	require.ErrorIs(t, <-first, context.Canceled)
	require.ErrorIs(t, <-reader, advisory.ErrPoolExhausted)
	for _, lock := range readers {
		require.NoError(t, lock.Unlock(t.Context()))
	}
	require.NoError(t, <-writer, "it got the connection of a reader")
}
