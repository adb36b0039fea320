package advisory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// Of many processes that want one lock, four wait on the server. The others come to
// their turn all the same.
func TestLock_ofManyProcessesFourWaitOnTheServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, key := range []advisory.Key{advisory.ID(7), advisory.Pair(-7, 7)} {
		held, err := b.locker.TryLock(t.Context(), key)
		require.NoError(t, err)
		waiters := make([]<-chan *advisory.Lock, 9)
		for i := range waiters {
			_, locker := b.another(t, nil, maxConns(2))
			waiters[i] = b.lockInBackground(t, locker, key)
			require.LessOrEqual(t, b.waiting(t), 4)
		}
		b.eventually(t, "four wait", func() bool { return b.waiting(t) == 4 })
		all, err := advisory.Inspect(t.Context(), b.raw)
		require.NoError(t, err)
		for _, status := range all {
			require.Equal(t, key.SQL(), status.Key.SQL(), "the seats are not shown")
		}
		require.NoError(t, held.Unlock(t.Context()))
		next := make(chan *advisory.Lock)
		for _, got := range waiters {
			go func() { next <- <-got }()
		}
		for range waiters {
			lock := <-next
			require.Equal(t, 1, scan[int](t, b, "SELECT count(*) "+advisoryLocks+" AND granted AND pid = $1", int(lock.BackendPID())), "it has given its seat back")
			require.NoError(t, lock.Unlock(t.Context()))
		}
		b.noLockLeft(t)
	}
}

// Readers are granted together, and none of them is parked.
func TestRLock_ofManyProcessesAllWaitOnTheServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	granted := make(chan *advisory.Lock)
	for range 7 {
		_, locker := b.another(t, nil, maxConns(2))
		go func() {
			lock, err := locker.RLock(t.Context(), advisory.ID(7))
			if err != nil {
				t.Error(err)
			}
			granted <- lock
		}()
	}
	b.eventually(t, "all wait on the server", func() bool { return b.waiting(t) == 7 })
	require.NoError(t, held.Unlock(t.Context()))
	for range 7 {
		defer func(lock *advisory.Lock) { require.NoError(t, lock.Unlock(t.Context())) }(<-granted)
	}
}

func TestPause_isAQuarterOfTheWait(t *testing.T) {
	t.Parallel()
	for waited, want := range map[time.Duration]time.Duration{
		0: 50 * time.Millisecond, 100 * time.Millisecond: 50 * time.Millisecond, time.Second: 250 * time.Millisecond,
		10 * time.Second: 2500 * time.Millisecond, time.Hour: 5 * time.Second,
	} {
		require.Equal(t, want*3/4, lockproto.Pause(waited, false, 0))
		require.Equal(t, want*5/4, lockproto.Pause(waited, false, 1))
		require.Equal(t, min(want, 200*time.Millisecond), lockproto.Pause(waited, true, 0.5))
	}
}
