//go:build unix

package redislease_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/redislease"
)

func TestTryLock_holdsUntilUnlock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	a, other := b.leaser(t, nil), b.leaser(t, nil)
	lease, err := a.TryLock(t.Context(), "nightly")
	require.NoError(t, err)
	require.NoError(t, lease.Err())
	require.Equal(t, "nightly", lease.Resource())
	require.Equal(t, int64(1), lease.Token())
	require.Len(t, b.held(t, "nightly"), 32)

	_, err = other.TryLock(t.Context(), "nightly")
	require.ErrorIs(t, err, redislease.ErrNotAcquired)
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.NotErrorIs(t, err, redislease.ErrUnavailable)
	_, err = a.TryLock(t.Context(), "nightly")
	require.ErrorIs(t, err, redislease.ErrNotAcquired, "not re-entrant")

	require.NoError(t, lease.Unlock(t.Context()))
	require.NoError(t, lease.Unlock(t.Context()), "what the first returned")
	require.ErrorIs(t, lease.Err(), redislease.ErrUnlocked)
	require.ErrorIs(t, lease.Err(), advisory.ErrUnlocked)
	receive(t, lease.Done())
	require.Empty(t, b.held(t, "nightly"))
	require.Equal(t, int64(2), mustLock(t, other, "nightly").Token())
}

func TestTryLock_hasOneWinner(t *testing.T) {
	t.Parallel()
	const rounds, callers = 2_000, 20
	b := setup(t)
	leasers := []*redislease.Leaser{b.leaser(t, nil), b.leaser(t, nil), b.leaser(t, nil), b.leaser(t, nil)}
	for round := range rounds {
		var winners atomic.Int64
		var won atomic.Pointer[redislease.Lease]
		var work sync.WaitGroup
		for i := range callers {
			// Ends with its call; the test waits.
			work.Go(func() {
				lease, err := leasers[i%len(leasers)].TryLock(t.Context(), "one")
				if err == nil {
					winners.Add(1)
					won.Store(lease)
				} else if !errors.Is(err, redislease.ErrNotAcquired) {
					t.Error(err)
				}
			})
		}
		work.Wait()
		require.Equal(t, int64(1), winners.Load())
		require.Equal(t, int64(round+1), won.Load().Token(), "one number for one grant")
		require.NoError(t, won.Load().Unlock(t.Context()))
	}
}

func TestLock_excludesWithTheShortestTTL(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var inside, tokens, grants atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	var work sync.WaitGroup
	for range 32 {
		l := b.leaser(t, &redislease.Config{TTL: 50 * time.Millisecond})
		// Ends with ctx; the test waits.
		work.Go(func() {
			for ctx.Err() == nil {
				lease, err := l.Lock(ctx, "one")
				if err != nil {
					if ctx.Err() == nil && !errors.Is(err, redislease.ErrUnavailable) {
						t.Error(err)
					}
					continue
				}
				grants.Add(1)
				// A holder that was late in looking is one that learns of it first thing.
				n := inside.Add(1)
				if lease.Err() == nil && n != 1 {
					t.Error("two inside")
				}
				if previous := tokens.Swap(lease.Token()); previous >= lease.Token() && lease.Err() == nil {
					t.Errorf("token %d after %d", lease.Token(), previous)
				}
				inside.Add(-1)
				_ = lease.Unlock(ctx) // may be lost on a machine that is busy
			}
		})
	}
	work.Wait()
	require.Positive(t, grants.Load())
	eventually(t, "nothing is held", func() bool { return len(b.locks(t)) == 0 })
}

func TestNew_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	client := setup(t).client(t)
	for name, config := range map[string]redislease.Config{
		"a TTL below the least":   {TTL: 49 * time.Millisecond},
		"a negative TTL":          {TTL: -time.Second},
		"half a millisecond":      {TTL: 500 * time.Microsecond},
		"300 years":               {TTL: math.MaxInt64},
		"a negative margin":       {Margin: -0.1},
		"no margin to speak of":   {Margin: 0.001},
		"a margin of all":         {Margin: 1},
		"a margin that is none":   {Margin: math.NaN()},
		"a negative MaxHold":      {MaxHold: -1},
		"a negative timeout":      {UnlockTimeout: -1},
		"a prefix with a brace":   {Prefix: "a{b"},
		"less than no counters":   {Counters: -1},
		"a brace that closes":     {Prefix: "a}b"},
		"a TTL above the longest": {TTL: 24*time.Hour + time.Millisecond},
	} {
		_, err := redislease.New(client, &config)
		require.Error(t, err, name)
	}
	_, err := redislease.New(nil, nil)
	require.Error(t, err)
}

func TestLock_refusesNamesThatAreNone(t *testing.T) {
	t.Parallel()
	l := setup(t).leaser(t, nil)
	for _, name := range []string{"", strings.Repeat("x", 2001)} {
		_, err := l.TryLock(t.Context(), name)
		require.ErrorIs(t, err, redislease.ErrInvalidResource)
		_, err = l.Lock(t.Context(), name)
		require.ErrorIs(t, err, redislease.ErrInvalidResource)
		require.ErrorIs(t, l.Lead(t.Context(), name, nil), redislease.ErrInvalidResource)
	}
}

func TestKeysOf_keepsAResourceInOneSlot(t *testing.T) {
	t.Parallel()
	tag := func(key string) string {
		_, rest, _ := strings.Cut(key, "{")
		tag, _, _ := strings.Cut(rest, "}")
		return tag
	}
	seen := make(map[string]string)
	for _, counters := range []int{0, 1, 7} {
		for _, name := range []string{"nightly", "}", "{", "{}", "a}b", "a{b}c", "%7D", "%", "lock", ":token", "nightly:token", "\x00", "日本"} {
			lock, counter, err := redislease.KeysOf("lease:", counters, name)
			require.NoError(t, err)
			require.NotEmpty(t, tag(lock), name)
			require.Equal(t, tag(lock), tag(counter), name)
			for _, key := range []string{lock, counter} {
				owner, ok := seen[key]
				require.True(t, !ok || owner == name || counters > 0 && key == counter, "%s is of %q and %q", key, owner, name)
				seen[key] = name
			}
		}
	}
	lock, counter, err := redislease.KeysOf("lease:", 0, "nightly")
	require.NoError(t, err)
	require.Equal(t, "lease:{nightly}", lock, "wire format")
	require.Equal(t, "lease:{nightly}:token", counter)
	lock, counter, err = redislease.KeysOf("lease:", 1000, "nightly")
	require.NoError(t, err)
	require.Equal(t, "lease:{"+tag(lock)+"}:lock:nightly", lock)
	require.Equal(t, "lease:{"+tag(lock)+"}:token", counter)
}

func TestCounters_areSharedAndTokensGrowAllTheSame(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.leaser(t, &redislease.Config{Counters: 2})
	last := make(map[string]int64)
	for range 3 {
		for i := range 50 {
			name := fmt.Sprint(i)
			lease := mustLock(t, l, name)
			require.Greater(t, lease.Token(), last[name])
			last[name] = lease.Token()
			require.NoError(t, lease.Unlock(t.Context()))
		}
	}
	keys, err := b.observer.Keys(t.Context(), b.prefix+"*").Result()
	require.NoError(t, err)
	require.Len(t, keys, 2)
	for _, key := range keys {
		ttl, err := b.observer.TTL(t.Context(), key).Result()
		require.NoError(t, err)
		require.Negative(t, ttl, "a counter never expires")
	}
}

func TestClose_releasesAllAndEndsTheWaits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l, other := b.leaser(t, nil), b.leaser(t, nil)
	var leases []*redislease.Lease
	for i := range 20 {
		leases = append(leases, mustLock(t, l, fmt.Sprint(i)))
	}
	mustLock(t, other, "taken")
	waiting := inBackground(func() (*redislease.Lease, error) { return l.Lock(context.Background(), "taken") })
	next := inBackground(func() (*redislease.Lease, error) { return l.Lock(t.Context(), "taken") })
	eventually(t, "it waits", func() bool { return b.calls(t, "evalsha") > 21 })
	require.NoError(t, l.Close(t.Context()))
	require.NoError(t, l.Close(t.Context()))
	require.ErrorIs(t, receive(t, waiting).err, redislease.ErrClosed)
	require.ErrorIs(t, receive(t, next).err, advisory.ErrClosed)
	require.Equal(t, []string{b.key("taken")}, b.locks(t))
	for _, lease := range leases {
		require.ErrorIs(t, lease.Err(), redislease.ErrClosed)
		require.ErrorIs(t, lease.Unlock(t.Context()), redislease.ErrClosed)
	}
	_, err := l.TryLock(t.Context(), "1")
	require.ErrorIs(t, err, redislease.ErrClosed)
	_, err = l.Lock(context.Background(), "1")
	require.ErrorIs(t, err, redislease.ErrClosed)
}

func TestLease_nil(t *testing.T) {
	t.Parallel()
	var lease *redislease.Lease
	require.ErrorIs(t, lease.Err(), redislease.ErrNotOwner)
	require.ErrorIs(t, lease.Unlock(t.Context()), advisory.ErrNotOwner)
	require.ErrorIs(t, lease.Check(t.Context()), redislease.ErrNotOwner)
	receive(t, lease.Done())
	ctx, cancel := lease.Context(t.Context())
	defer cancel()
	require.ErrorIs(t, context.Cause(ctx), redislease.ErrNotOwner)
	require.Zero(t, lease.Token())
	require.Empty(t, lease.Resource())
	require.True(t, lease.SafeUntil().IsZero())
}

var errWork = errors.New("work failed")

func TestDo_givesBackHoweverFnEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.leaser(t, nil)
	require.Equal(t, errWork, l.Do(t.Context(), "r", func(context.Context, *redislease.Lease) error { return errWork }))
	require.Panics(t, func() {
		_ = l.Do(t.Context(), "r", func(context.Context, *redislease.Lease) error { panic("work panicked") })
	})
	ended := make(chan struct{})
	// Ends by itself, in the middle of fn.
	go func() {
		defer close(ended)
		_ = l.TryDo(t.Context(), "r", func(context.Context, *redislease.Lease) error {
			runtime.Goexit()
			return nil
		})
	}()
	receive(t, ended)
	require.Empty(t, b.held(t, "r"))
}

func TestDo_endsFnsContextAndReportsBothErrors(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.leaser(t, nil)
	err := l.Do(t.Context(), "r", func(ctx context.Context, _ *redislease.Lease) error {
		require.NoError(t, b.observer.Del(ctx, b.key("r")).Err())
		redislease.Beat(l)
		receive(t, ctx.Done())
		require.ErrorIs(t, context.Cause(ctx), redislease.ErrLost)
		return errWork
	})
	require.ErrorIs(t, err, errWork)
	require.ErrorIs(t, err, redislease.ErrLost)
	require.ErrorIs(t, err, advisory.ErrLost)
	require.ErrorIs(t, err, redislease.ErrNotOwner)
}

func TestLead_goesOnAfterALossWithAHigherToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.leaser(t, nil)
	var tokens []int64
	err := l.Lead(t.Context(), "r", func(ctx context.Context, lease *redislease.Lease) error {
		if tokens = append(tokens, lease.Token()); len(tokens) == 2 {
			return nil
		}
		require.NoError(t, b.observer.Del(ctx, b.key("r")).Err())
		redislease.Beat(l)
		receive(t, ctx.Done())
		return errWork
	})
	require.NoError(t, err)
	require.Equal(t, []int64{1, 2}, tokens)
}

func TestLock_errorsAreToldApart(t *testing.T) {
	t.Parallel()
	b := alone(t)
	l := b.leaser(t, &redislease.Config{TTL: 100 * time.Millisecond, Prefix: "lease:"}, func(o *redis.Options) { o.MaxRetries = -1; o.DialerRetries = 1 })
	holder := b.leaser(t, &redislease.Config{TTL: time.Hour, Prefix: "lease:"})
	lease := mustLock(t, holder, "r")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	_, err := l.Lock(ctx, "r")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, redislease.ErrUnavailable)
	require.GreaterOrEqual(t, time.Since(start), time.Second, "the TTL bounds no wait")
	require.NoError(t, b.server.Kill())
	for _, lock := range []func(context.Context, string) (*redislease.Lease, error){l.TryLock, l.Lock} {
		_, err := lock(t.Context(), "r")
		require.ErrorIs(t, err, redislease.ErrUnavailable)
		require.NotErrorIs(t, err, redislease.ErrNotAcquired)
	}
	require.ErrorIs(t, lease.Unlock(t.Context()), redislease.ErrUnavailable)
}
