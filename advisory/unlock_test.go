package advisory_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func TestUnlock_worksOnACancelledContext(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	ctx, cancel := context.WithCancel(t.Context())
	lock, err := b.locker.TryLock(ctx, advisory.Name("case 7"))
	require.NoError(t, err)
	cancel()
	require.NoError(t, lock.Unlock(ctx))
	require.Zero(t, b.granted(t), "free when Unlock returns")
	require.Zero(t, b.pool.Stat().AcquiredConns())
	require.EqualValues(t, 1, b.pool.Stat().NewConnsCount())
	_, err = b.locker.TryLock(t.Context(), advisory.Name("case 7"))
	require.NoError(t, err)
	require.EqualValues(t, 1, b.pool.Stat().NewConnsCount(), "on the same connection")
}

func TestUnlock_manyCallersGetOneAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 20 { // case 112
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := lock.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		require.NoError(t, lock.Unlock(t.Context()))
	}
	b.leakCheck(t)
}

func TestUnlock_ofALostLockLeavesTheNextHolderAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, other := b.another(t, nil)
	first, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	b.terminate(t, first.BackendPID())
	second, err := other.Lock(t.Context(), advisory.ID(7))
	require.NoError(t, err)

	for range 2 {
		require.ErrorIs(t, first.Unlock(t.Context()), advisory.ErrLost)
	}
	require.True(t, b.isHeldBy(t, 7, second.BackendPID()))
	require.NoError(t, second.Err())
	require.NoError(t, second.Unlock(t.Context()))
}

func TestUnlock_saysWhenTheSessionDidNotHoldTheLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	// Case 19: something releases it on the pinned session itself.
	require.NoError(t, advisory.ExecOnSession(lock, "SELECT pg_advisory_unlock_all()"))

	err = lock.Unlock(t.Context())
	require.ErrorIs(t, err, advisory.ErrNotOwner)
	require.ErrorIs(t, err, advisory.ErrLost)
	var lost *advisory.LostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, advisory.LostNotHeld, lost.Reason)
	require.Equal(t, []advisory.Key{advisory.ID(7)}, lost.Keys)
	b.eventually(t, "the session is ended", func() bool {
		return !scan[bool](t, b, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND "+inUse+")", int(lock.BackendPID()))
	})
	b.leakCheck(t)
}

func TestUnlock_whateverTheSessionWasLeftIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, sql := range map[string]string{
		"an open transaction":         "BEGIN",
		"case 78: the lock once more": "SELECT pg_advisory_lock(7)",
		"case 78: another lock":       "SELECT pg_advisory_lock(8)",
	} {
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		require.NoError(t, advisory.ExecOnSession(lock, sql))
		next := make(chan *advisory.Lock, 1)
		go func() {
			lock, err := b.locker.Lock(context.Background(), advisory.ID(7))
			if err != nil {
				t.Error(err)
			}
			next <- lock
		}()
		b.eventually(t, "it is in the queue", func() bool { return advisory.Waiting(b.locker, advisory.ID(7)) == 1 })
		require.NoError(t, lock.Unlock(t.Context()), name)
		again := <-next
		require.Equal(t, 1, b.granted(t), name)
		b.eventually(t, "idle, outside of a transaction", func() bool {
			return scan[bool](t, b, "SELECT state = 'idle' FROM pg_stat_activity WHERE pid = $1", int(again.BackendPID()))
		})
		require.NoError(t, again.Unlock(t.Context()), name)
		b.leakCheck(t)
	}
}

func TestUnlock_returnsWithinItsBoundOnADeadLink(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := b.proxy(t)
	pool, locker := b.another(t, &advisory.Config{UnlockTimeout: 300 * time.Millisecond}, through(proxy))
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	proxy.Swallow() // case 9

	elapsed := timed(t)
	err = lock.Unlock(t.Context())
	require.ErrorIs(t, err, advisory.ErrLost)
	require.Less(t, elapsed(), 3*time.Second)
	var lost *advisory.LostError
	require.ErrorAs(t, err, &lost)
	require.Equal(t, advisory.LostUnresponsive, lost.Reason)
	require.Zero(t, pool.Stat().AcquiredConns())
	require.Equal(t, err, lock.Unlock(t.Context()), "and the same answer later")
	b.terminate(t, lock.BackendPID()) // the server still waits for it
}

func TestUnlock_afterTheConnectionWasReset(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := b.proxy(t)
	pool, locker := b.another(t, nil, through(proxy))
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	proxy.Reset() // case 11
	err = lock.Unlock(t.Context())
	require.ErrorIs(t, err, advisory.ErrLost)
	require.Equal(t, err, lock.Unlock(t.Context()))
	require.Zero(t, pool.Stat().AcquiredConns())
	b.noLockLeft(t)
}

func TestUnlock_whenTheServerRefusesIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	// Case 22, seen at its unlock: 25P02. The session is alive, so the lock was
	// not lost; it is ended in place of the unlock.
	require.Error(t, advisory.ExecOnSession(lock, "BEGIN; SELECT 1/0"))
	err = lock.Unlock(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, advisory.ErrLost, "case 12")
	require.ErrorContains(t, err, "25P02")
	b.leakCheck(t)
}

func TestUnlock_ofNoLock(t *testing.T) {
	t.Parallel()
	for _, lock := range []*advisory.Lock{nil, new(advisory.Lock)} { // case 6
		require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrNotOwner)
		require.ErrorIs(t, lock.Err(), advisory.ErrNotOwner)
		require.True(t, isClosed(lock.Done()))
		ctx, cancel := lock.Context(t.Context())
		require.ErrorIs(t, context.Cause(ctx), advisory.ErrNotOwner)
		cancel()
	}
}
