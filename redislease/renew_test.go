//go:build unix

package redislease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
	"github.com/pgadvisory/pgadvisory/redislease"
)

// renewed waits for the next renewal of each lease, and fails if one is lost.
func renewed(t *testing.T, leases ...*redislease.Lease) {
	t.Helper()
	for _, lease := range leases {
		before := redislease.Until(lease)
		eventually(t, "it is renewed", func() bool {
			require.NoError(t, lease.Err())
			return redislease.Until(lease) > before
		})
	}
}

// renewals has all leases of the first one's Leaser renewed now, and waits for that.
func renewals(t *testing.T, leases ...*redislease.Lease) {
	t.Helper()
	before := make([]time.Duration, len(leases))
	for i, lease := range leases {
		before[i] = redislease.Until(lease)
	}
	redislease.Beat(redislease.LeaserOf(leases[0]))
	for i, lease := range leases {
		eventually(t, "it is renewed", func() bool {
			require.NoError(t, lease.Err())
			return redislease.Until(lease) > before[i]
		})
	}
}

func TestRenewal_holdsForManyTTLs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.leaser(t, &redislease.Config{TTL: 9 * time.Second})
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	lease, err := l.Lock(ctx, "r")
	require.NoError(t, err)
	cancel()      // the wait's, and not the hold's
	for range 4 { // 3 s each
		renewed(t, lease)
	}
	require.NoError(t, lease.Unlock(t.Context()))
}

func TestRenewal_afterTheScriptsWereFlushed(t *testing.T) {
	t.Parallel()
	b := alone(t)
	l := b.leaser(t, &redislease.Config{TTL: time.Minute})
	var leases []*redislease.Lease
	for i := range 100 {
		leases = append(leases, mustLock(t, l, fmt.Sprint(i)))
	}
	for range 2 {
		require.NoError(t, b.observer.ScriptFlush(t.Context()).Err())
		renewals(t, leases...)
	}
	require.NoError(t, b.observer.ScriptFlush(t.Context()).Err())
	for _, lease := range leases {
		require.NoError(t, lease.Unlock(t.Context()))
	}
}

func TestRenewal_isOneRoundTripForAll(t *testing.T) {
	t.Parallel()
	b := alone(t)
	client, _ := b.proxied(t)
	l := b.on(t, client, &redislease.Config{TTL: time.Minute})
	var leases []*redislease.Lease
	for i := range 50 {
		leases = append(leases, mustLock(t, l, fmt.Sprint(i)))
	}
	renewals(t, leases...)
	own := 0
	list, err := b.observer.ClientList(t.Context()).Result()
	require.NoError(t, err)
	for _, line := range splitLines(list) {
		if line != "" {
			own++
		}
	}
	require.LessOrEqual(t, own, 4, "the observer, the application's, the Leaser's: %s", list)
}

func TestRenewal_doesNotWaitBehindTheApplication(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client := b.client(t, func(o *redis.Options) { o.PoolSize = 2; o.ReadTimeout = limit; o.MaxRetries = -1 })
	l := b.on(t, client, &redislease.Config{TTL: time.Minute})
	lease := mustLock(t, l, "r")
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for i := range 2 {
		// Ends when its list gets an element; the test waits.
		work.Go(func() { client.BLPop(ctx, 0, fmt.Sprint(b.prefix, "list", i)) })
	}
	eventually(t, "the pool is full", func() bool { s := client.PoolStats(); return s.TotalConns == 2 && s.IdleConns == 0 })
	renewals(t, lease)
	require.NoError(t, lease.Unlock(t.Context()))
	cancel()
	for i := range 2 {
		require.NoError(t, b.observer.RPush(t.Context(), fmt.Sprint(b.prefix, "list", i), "x").Err())
	}
	work.Wait()
}

// A client that is shared has no connection for the renewal here. The lease ends in
// time, while the call hangs.
func TestRenewal_onASharedClientEndsInTime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, proxy := b.proxied(t, func(o *redis.Options) { o.PoolSize = 1; o.ReadTimeout = limit; o.MaxRetries = -1 })
	l := b.on(t, client, &redislease.Config{TTL: 500 * time.Millisecond, ShareClient: true, UnlockTimeout: 50 * time.Millisecond})
	lease := mustLock(t, l, "r")
	proxy.HangNew(true) // the client has a second pool, for pipelines
	proxy.SwallowOnly(faultproxy.ToClient)
	receive(t, lease.Done())
	require.Equal(t, redislease.LostExpired, reason(t, lease.Err()))
	require.Equal(t, redislease.LostExpired, reason(t, lease.Unlock(t.Context())))
	proxy.Cut()
}

func TestRenewal_neverTakesALockThatWasLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l, other := b.leaser(t, &redislease.Config{TTL: time.Minute}), b.leaser(t, nil)
	lease := mustLock(t, l, "gone")
	require.NoError(t, b.observer.Del(t.Context(), b.key("gone")).Err())
	redislease.Beat(l)
	receive(t, lease.Done())
	require.Equal(t, redislease.LostMissing, reason(t, lease.Err()))
	require.Equal(t, redislease.LostMissing, reason(t, lease.Unlock(t.Context())))
	require.Empty(t, b.held(t, "gone"))

	lease = mustLock(t, l, "taken")
	require.NoError(t, b.observer.Del(t.Context(), b.key("taken")).Err())
	taken := mustLock(t, other, "taken")
	redislease.Beat(l)
	receive(t, lease.Done())
	require.Equal(t, redislease.LostTaken, reason(t, lease.Err()))
	require.Error(t, lease.Unlock(t.Context()))
	require.Greater(t, taken.Token(), lease.Token())
	require.NoError(t, taken.Check(t.Context()))
	require.NoError(t, taken.Unlock(t.Context()))
}

// Unlock finds out what no renewal did.
func TestUnlock_ofWhatIsNotHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l, other := b.leaser(t, &redislease.Config{TTL: time.Hour}), b.leaser(t, nil)
	for name, want := range map[string]redislease.LostReason{"missing": redislease.LostMissing, "taken": redislease.LostTaken} {
		lease := mustLock(t, l, name)
		require.NoError(t, b.observer.Del(t.Context(), b.key(name)).Err())
		var taken *redislease.Lease
		if want == redislease.LostTaken {
			taken = mustLock(t, other, name)
		}
		for range 2 {
			err := lease.Unlock(t.Context())
			require.Equal(t, want, reason(t, err))
			require.ErrorIs(t, err, redislease.ErrNotOwner)
		}
		if taken != nil {
			require.NoError(t, taken.Unlock(t.Context()), "it was left alone")
		}
	}
}

func TestCheck_findsALossAndRenews(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.leaser(t, &redislease.Config{TTL: time.Hour})
	lease := mustLock(t, l, "r")
	require.NoError(t, b.observer.PExpire(t.Context(), b.key("r"), time.Minute).Err())
	require.NoError(t, lease.Check(t.Context()))
	left, err := b.observer.PTTL(t.Context(), b.key("r")).Result()
	require.NoError(t, err)
	require.Greater(t, left, 50*time.Minute)
	require.NoError(t, b.observer.Del(t.Context(), b.key("r")).Err())
	require.Equal(t, redislease.LostMissing, reason(t, lease.Check(t.Context())))
	require.ErrorIs(t, lease.Err(), redislease.ErrLost)
}

// Renewals set the end, and add nothing to it.
func TestRenewal_neverMovesTheEndBeyondATTL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const ttl = time.Minute
	l := b.leaser(t, &redislease.Config{TTL: ttl})
	lease := mustLock(t, l, "r")
	for range 1000 {
		require.NoError(t, lease.Check(t.Context()))
	}
	left, err := b.observer.PTTL(t.Context(), b.key("r")).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, left, ttl)
	require.LessOrEqual(t, time.Until(lease.SafeUntil()), ttl*8/10)
}

func TestRenewal_survivesAServerThatIsBusyOrLoads(t *testing.T) {
	t.Parallel()
	b := alone(t)
	require.NoError(t, b.observer.ConfigSet(t.Context(), "busy-reply-threshold", "50").Err())
	l := b.leaser(t, &redislease.Config{TTL: time.Minute})
	lease := mustLock(t, l, "r")
	// Ends with the script; the test waits.
	done := make(chan error, 1)
	slow := b.client(t, func(o *redis.Options) { o.ReadTimeout = limit; o.MaxRetries = -1 })
	go func() {
		done <- slow.Eval(t.Context(), `local t = redis.call('TIME')[1] + 2 while tonumber(redis.call('TIME')[1]) < t do end return 1`, nil).Err()
	}()
	eventually(t, "it is busy", func() bool { return redis.HasErrorPrefix(b.observer.Get(t.Context(), "x").Err(), "BUSY") })
	redislease.Beat(l)
	require.NoError(t, receive(t, done))
	renewals(t, lease)

	require.NoError(t, b.observer.Do(t.Context(), "CLIENT", "PAUSE", "1500").Err())
	renewals(t, lease)
	require.NoError(t, lease.Unlock(t.Context()))
}

// A server that does not come back in time: lost then, and not earlier.
func TestRenewal_givesUpAtSafeUntil(t *testing.T) {
	t.Parallel()
	b := alone(t)
	l := b.leaser(t, &redislease.Config{TTL: 2 * time.Second, UnlockTimeout: 100 * time.Millisecond})
	lease := mustLock(t, l, "r")
	require.NoError(t, b.server.Freeze())
	t.Cleanup(func() { _ = b.server.Thaw() })
	for {
		until := lease.SafeUntil()
		if err := lease.Err(); err != nil {
			require.Equal(t, redislease.LostExpired, reason(t, err))
			require.False(t, time.Now().Before(until.Add(-20*time.Millisecond)), "lost before its time")
			break
		}
		require.Less(t, time.Until(until), 1600*time.Millisecond)
		select {
		case <-lease.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
	receive(t, lease.Done())
	start := time.Now()
	require.Equal(t, redislease.LostExpired, reason(t, lease.Unlock(t.Context())))
	require.Less(t, time.Since(start), limit/2)
}

func TestRenewal_goesOnAfterARestartThatKeepsTheData(t *testing.T) {
	t.Parallel()
	b := alone(t, "--appendonly", "yes", "--appendfsync", "always")
	l := b.leaser(t, &redislease.Config{TTL: time.Minute})
	lease := mustLock(t, l, "r")
	require.NoError(t, b.server.Restart(t.Context()))
	renewals(t, lease)
	require.NoError(t, lease.Unlock(t.Context()))
	require.Equal(t, int64(2), mustLock(t, l, "r").Token())
}

// Without persistence a restart loses the lock, and tokens begin anew. That is what
// fences of Redis's own can't help, and what fencing.NewOver is for.
func TestRestart_withoutPersistenceLosesLockAndTokens(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*bundle) error{
		"restart":  func(b *bundle) error { return b.server.Restart(t.Context()) },
		"FLUSHALL": func(b *bundle) error { return b.observer.FlushAll(t.Context()).Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := alone(t)
			l, other := b.leaser(t, &redislease.Config{TTL: 2 * time.Second}), b.leaser(t, nil)
			lease := mustLock(t, l, "r")
			require.NoError(t, lose(b))
			var next *redislease.Lease
			eventually(t, "the other gets it", func() bool {
				var err error
				next, err = other.TryLock(t.Context(), "r")
				return err == nil
			})
			require.Equal(t, lease.Token(), next.Token())
			receive(t, lease.Done())
			require.ErrorIs(t, lease.Err(), redislease.ErrLost)
		})
	}
}

func TestMaxHold_endsALeaseThatDoesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.leaser(t, &redislease.Config{TTL: time.Minute, MaxHold: 300 * time.Millisecond})
	err := l.Do(t.Context(), "r", func(ctx context.Context, _ *redislease.Lease) error {
		receive(t, ctx.Done())
		require.Equal(t, redislease.LostMaxHold, reason(t, context.Cause(ctx)))
		return nil
	})
	require.Equal(t, redislease.LostMaxHold, reason(t, err))
	short := b.leaser(t, &redislease.Config{TTL: time.Second, MaxHold: 100 * time.Millisecond})
	mustLock(t, short, "forgotten") // and never unlocked
	mustLock(t, b.leaser(t, nil), "forgotten")
}

func TestRenewal_neitherOutlivesTheUnlockNorMissesTheNextHolder(t *testing.T) {
	t.Parallel()
	b := alone(t)
	l := b.leaser(t, &redislease.Config{TTL: 30 * time.Second})
	var work sync.WaitGroup
	for i := range 64 {
		// Ends after its rounds; the test waits.
		work.Go(func() {
			for range 20 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(20*time.Millisecond))
				lease, err := l.Lock(ctx, fmt.Sprint(i%8))
				if err == nil {
					if err := lease.Unlock(ctx); err != nil && !errors.Is(err, redislease.ErrLost) {
						t.Error(err)
					}
				}
				cancel()
			}
		})
	}
	work.Wait()
	eventually(t, "nothing is held", func() bool { return len(b.locks(t)) == 0 })
	require.NoError(t, b.server.Restart(t.Context()))
	for i := range 8 {
		lease := mustLock(t, l, fmt.Sprint(i))
		renewals(t, lease)
		require.NoError(t, lease.Unlock(t.Context()))
	}
}

// boottime is a clock that a test moves on.
type boottime struct{ extra atomic.Int64 }

func (c *boottime) now() time.Duration {
	return redislease.SystemClock()() + time.Duration(c.extra.Load())
}

func TestLease_endsWhileTheMachineSleeps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	clock := new(boottime)
	l := b.leaser(t, &redislease.Config{TTL: time.Minute})
	redislease.SetClock(l, clock.now)
	lease, told := mustLock(t, l, "r"), mustLock(t, l, "told")
	require.NoError(t, lease.Err())
	clock.extra.Add(int64(time.Hour)) // no timer of Go's has moved on
	require.Equal(t, redislease.LostExpired, reason(t, lease.Err()), "first thing")
	receive(t, told.Done())
}

func TestSystemClock_isNotBehindTheMonotonicOne(t *testing.T) {
	t.Parallel()
	now := redislease.SystemClock()
	start, begin := time.Now(), now()
	<-time.After(20 * time.Millisecond)
	passed := time.Since(start)
	require.GreaterOrEqual(t, now()-begin, passed-time.Millisecond)
}
