package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func (b *bundle) openSession(t *testing.T) *advisory.Session {
	t.Helper()
	s, err := b.locker.Session(t.Context())
	require.NoError(t, err)
	return s
}

func TestSession_holdsManyLocksOnOneConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(3))
	s := b.openSession(t)
	require.Equal(t, "lock session", scan[string](t, b, "SELECT application_name FROM pg_stat_activity WHERE pid = $1", int(s.BackendPID())))
	keys := []advisory.Key{advisory.Name("a"), advisory.ID(-1), advisory.Pair(1, -2)}
	var locks []*advisory.Lock
	for _, k := range keys {
		lock, err := s.TryLock(t.Context(), k)
		require.NoError(t, err)
		require.Equal(t, s.BackendPID(), lock.BackendPID())
		locks = append(locks, lock)
		for _, try := range []func(context.Context, advisory.Key) (*advisory.Lock, error){s.TryLock, s.TryRLock, b.locker.TryLock, b.locker.TryRLock} {
			_, err = try(t.Context(), k)
			require.ErrorIs(t, err, advisory.ErrNotAcquired, "law 11: not re-entrant, from wherever")
		}
	}
	shared, err := s.TryRLock(t.Context(), advisory.ID(9))
	require.NoError(t, err)
	other, err := b.locker.TryRLock(t.Context(), advisory.ID(9))
	require.NoError(t, err)
	require.NoError(t, other.Unlock(t.Context()))
	require.Equal(t, 4, b.granted(t))
	require.EqualValues(t, 1, b.pool.Stat().AcquiredConns())

	require.NoError(t, locks[1].Unlock(t.Context()))
	require.ErrorIs(t, locks[1].Err(), advisory.ErrUnlocked)
	require.Equal(t, 3, b.granted(t), "each has its own unlock")
	require.NoError(t, locks[0].Err())
	again, err := s.TryLock(t.Context(), keys[1])
	require.NoError(t, err)
	require.NoError(t, again.Unlock(t.Context()))

	require.NoError(t, s.Close(t.Context()))
	require.NoError(t, s.Close(t.Context()))
	require.Zero(t, b.granted(t))
	require.Zero(t, b.pool.Stat().AcquiredConns())
	for _, lock := range []*advisory.Lock{locks[0], locks[2], shared} {
		require.True(t, isClosed(lock.Done()))
		require.ErrorIs(t, lock.Err(), advisory.ErrClosed)
		require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrClosed)
	}
	require.NoError(t, locks[1].Unlock(t.Context()))
	_, err = s.TryLock(t.Context(), keys[0])
	require.ErrorIs(t, err, advisory.ErrClosed)
	lock, err := b.locker.TryLock(t.Context(), keys[0])
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
	require.EqualValues(t, 2, b.pool.Stat().NewConnsCount(), "the session's connection was good enough for the next")
}

func TestSession_takesAllOrNone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.openSession(t)
	holder := b.session(t)
	exec(t, holder, "SELECT pg_advisory_lock(3)")
	_, err := s.TryLockAll(t.Context(), ids(1, 2, 3, 4)...)
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.Equal(t, 1, b.granted(t))
	exec(t, holder, "SELECT pg_advisory_unlock(3)")
	lock, err := s.TryLockAll(t.Context(), ids(4, 3, 2, 1, 1)...)
	require.NoError(t, err)
	require.Equal(t, 4, b.granted(t))
	_, err = s.TryLockAll(t.Context(), ids(9, 1)...)
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.NoError(t, lock.Unlock(t.Context()))
	require.Zero(t, b.granted(t))
	_, err = s.TryLockAll(t.Context())
	require.ErrorIs(t, err, advisory.ErrInvalidKey)
}

func TestSession_itsLocksAreLostTogether(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.openSession(t)
	var locks []*advisory.Lock
	for i := range 20 { // case 29
		lock, err := s.TryLock(t.Context(), advisory.ID(int64(i)))
		require.NoError(t, err)
		locks = append(locks, lock)
	}
	b.terminate(t, s.BackendPID())
	for i, lock := range locks {
		<-lock.Done()
		var lost *advisory.LostError
		require.ErrorAs(t, lock.Err(), &lost)
		require.Equal(t, ids(int64(i)), lost.Keys)
		require.Equal(t, advisory.LostTerminated, lost.Reason)
		require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost)
	}
	_, err := s.TryLock(t.Context(), advisory.ID(0))
	require.ErrorIs(t, err, advisory.ErrLost)
	require.NoError(t, s.Close(t.Context()))
	b.leakCheck(t)
	again, err := b.locker.TryLock(t.Context(), advisory.ID(0))
	require.NoError(t, err)
	require.NoError(t, again.Unlock(t.Context()))
}

func TestSession_endOfTheConnectionUnderLoad(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 5 {
		s := b.openSession(t)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for {
					lock, err := s.TryLock(context.Background(), advisory.ID(int64(i)))
					if err == nil {
						err = lock.Unlock(context.Background())
					}
					if err != nil {
						if !errors.Is(err, advisory.ErrLost) {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		b.eventually(t, "it works", func() bool { return b.granted(t) > 0 })
		b.terminate(t, s.BackendPID())
		wg.Wait()
		b.leakCheck(t)
	}
}

func TestSession_callersThatLeaveKeepNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.openSession(t)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 100 {
				ctx, cancel := context.WithTimeout(context.Background(), rand.N(500*time.Microsecond))
				lock, err := s.TryLockAll(ctx, ids(int64(2*i), int64(2*i+1))...)
				switch {
				case err == nil:
					if err := lock.Unlock(ctx); err != nil {
						t.Error(err)
					}
				case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, advisory.ErrNotAcquired): // its own of before, on the way back
					t.Error(err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	b.noLockLeft(t)
	require.NoError(t, s.Close(t.Context()))
	b.leakCheck(t)
}

func TestSession_excludesLikeAnyOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, other := b.another(t, nil)
	sessions := []*advisory.Session{b.openSession(t), b.openSession(t)}
	s, err := other.Session(t.Context())
	require.NoError(t, err)
	sessions = append(sessions, s)
	var holders counter
	var granted counter
	var wg sync.WaitGroup
	for _, s := range sessions {
		for range 4 {
			wg.Go(func() {
				for range 100 {
					lock, err := s.TryLock(context.Background(), advisory.ID(7))
					if errors.Is(err, advisory.ErrNotAcquired) {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					if n := holders.add(1); n != 1 {
						t.Errorf("%d hold at once", n)
					}
					runtime.Gosched()
					granted.add(1)
					holders.add(-1)
					if err := lock.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	require.Positive(t, granted.n)
	b.noLockLeft(t)
}

func TestSession_waitersOfTheLockerFollowItsLocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.openSession(t)
	lock, err := s.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	got := make(chan *advisory.Lock, 1)
	go func() {
		k, err := b.locker.Lock(context.Background(), advisory.ID(7))
		if err != nil {
			t.Error(err)
		}
		got <- k
	}()
	b.eventually(t, "it is in the queue", func() bool { return advisory.Waiting(b.locker, advisory.ID(7)) == 1 })
	require.EqualValues(t, 1, b.pool.Stat().AcquiredConns())
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, (<-got).Unlock(t.Context()))
}

func TestSession_runsTransactionsBetweenItsRoundTrips(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.openSession(t)
	lock, err := s.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.NoError(t, lock.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
		require.Equal(t, s.BackendPID(), pidOf(t, tx))
		return nil
	}))
	second, err := s.TryLock(t.Context(), advisory.ID(8))
	require.NoError(t, err)
	require.NoError(t, second.Unlock(t.Context()))
	require.NoError(t, lock.Unlock(t.Context()))
}

func TestSession_putsTheSettingsBack(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool, locker := b.another(t, nil, maxConns(2), setting("application_name", "billing"))
	observe := func() map[string]string {
		c, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		defer c.Release()
		return settingsOf(t, c.Conn(), settingsPutBack(b))
	}
	before := observe()
	s, err := locker.Session(t.Context())
	require.NoError(t, err)
	require.Equal(t, "lock session of billing", scan[string](t, b, "SELECT application_name FROM pg_stat_activity WHERE pid = $1", int(s.BackendPID())))
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, before, observe())
	require.EqualValues(t, 1, pool.Stat().NewConnsCount())
}

// It runs alone, for the sake of what it measures, and of the server's lock table.
func TestSession_tenThousandLocks(t *testing.T) {
	b := setup(t)
	s := b.openSession(t)
	const n = 10_000
	keys := make([]advisory.Key, n)
	for i := range keys {
		keys[i] = advisory.Name(fmt.Sprintf("tenant:%d", i))
	}
	locks := make([]*advisory.Lock, n)
	before := heap()
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < n; i += 64 {
				var err error
				if locks[i], err = s.TryLock(context.Background(), keys[i]); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	perLock := (float64(heap()) - float64(before)) / n
	t.Logf("%.0f bytes a lock", perLock)
	require.Less(t, perLock, 1024.0)
	require.Equal(t, n, b.granted(t))
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < n; i += 64 {
				if err := locks[i].Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, b.granted(t))
	runtime.KeepAlive(locks)
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestSession_closesWithItsLocker(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.openSession(t)
	lock, err := s.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.NoError(t, b.locker.Close(t.Context()))
	require.ErrorIs(t, lock.Err(), advisory.ErrClosed)
	require.Zero(t, b.granted(t))
	require.Zero(t, b.pool.Stat().AcquiredConns())
	_, err = b.locker.Session(t.Context())
	require.ErrorIs(t, err, advisory.ErrClosed)
	_, err = s.TryLock(t.Context(), advisory.ID(7))
	require.ErrorIs(t, err, advisory.ErrClosed)
}

func TestSession_needsAConnection(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	s := b.openSession(t)
	_, err := b.locker.Session(t.Context())
	require.ErrorIs(t, err, advisory.ErrPoolExhausted)
	require.NoError(t, s.Close(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = b.locker.Session(ctx)
	require.ErrorIs(t, err, context.Canceled)
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(time.Millisecond))
		s, err := b.locker.Session(ctx)
		if err == nil {
			require.NoError(t, s.Close(ctx))
		} else {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		cancel()
	}
	b.leakCheck(t)
}
