//go:build unix

package redislease_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
	"github.com/pgadvisory/pgadvisory/redislease"
)

func splitLines(s string) []string { return strings.Split(strings.TrimSpace(s), "\n") }

// The client repeats a command whose answer did not come. It is one grant all the
// same, with the token of the first.
func TestTryLock_ofAClientThatRepeatsCommands(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(*faultproxy.Proxy){
		"no answer in time":                     func(*faultproxy.Proxy) {},
		"a connection that ends, and no answer": (*faultproxy.Proxy).Cut,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := alone(t)
			client, proxy := b.proxied(t, func(o *redis.Options) { o.ReadTimeout = 500 * time.Millisecond; o.MaxRetries = 5 })
			l := b.on(t, client, &redislease.Config{TTL: 30 * time.Second})
			require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context())) // a connection, and the scripts
			calls := b.calls(t, "evalsha")
			proxy.SwallowOnly(faultproxy.ToClient)
			result := inBackground(func() (*redislease.Lease, error) { return l.TryLock(t.Context(), "r") })
			eventually(t, "Redis has granted it", func() bool { return b.held(t, "r") != "" })
			granted := time.Now()
			lose(proxy)
			eventually(t, "it is repeated", func() bool { return b.calls(t, "evalsha") >= calls+2 })
			a := receive(t, result)
			require.NoError(t, a.err)
			require.Equal(t, int64(1), a.lease.Token())
			counter, err := b.observer.Get(t.Context(), b.key("r")+":token").Int64()
			require.NoError(t, err)
			require.Equal(t, int64(1), counter, "one number for one grant")
			require.False(t, a.lease.SafeUntil().After(granted.Add(24*time.Second)), "counted from the first time that it was sent")
		})
	}
}

func TestLock_returnsSoonAfterItsContextEnds(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]func(*redis.Options){
		"as usual":              func(*redis.Options) {},
		"with context timeouts": func(o *redis.Options) { o.ContextTimeoutEnabled = true },
	} {
		for _, how := range []string{"deadline", "cancel"} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				client, proxy := b.proxied(t, options)
				l := b.on(t, client, nil)
				require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
				proxy.Delay(faultproxy.ToClient, limit)
				for _, lock := range []func(context.Context, string) (*redislease.Lease, error){l.TryLock, l.Lock} {
					ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
					want := context.DeadlineExceeded
					if how == "cancel" {
						ctx, cancel = context.WithCancel(t.Context())
						time.AfterFunc(100*time.Millisecond, cancel)
						want = context.Canceled
					}
					start := time.Now()
					_, err := lock(ctx, "r")
					require.ErrorIs(t, err, want)
					require.Less(t, time.Since(start), limit/3)
					cancel()
				}
				proxy.Delay(faultproxy.ToClient, 0)
			})
		}
	}
}

// An attempt that was given up does not keep the lock until its TTL.
func TestTryLock_thatWasGivenUpIsReleased(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, proxy := b.proxied(t)
	l, other := b.on(t, client, &redislease.Config{TTL: time.Hour}), b.leaser(t, nil)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	proxy.Delay(faultproxy.ToClient, 500*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	result := inBackground(func() (*redislease.Lease, error) { return l.TryLock(ctx, "r") })
	eventually(t, "Redis has granted it", func() bool { return b.held(t, "r") != "" })
	cancel()
	require.ErrorIs(t, receive(t, result).err, context.Canceled)
	require.NoError(t, client.Close(), "the application's, and not the Leaser's")
	lease := mustLock(t, other, "r")
	require.Equal(t, int64(2), lease.Token())
	require.NoError(t, lease.Unlock(t.Context()))
}

func TestClose_waitsForWhatWasGivenUp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, proxy := b.proxied(t)
	l := b.on(t, client, &redislease.Config{TTL: time.Hour})
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	proxy.Delay(faultproxy.ToClient, 300*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	result := inBackground(func() (*redislease.Lease, error) { return l.TryLock(ctx, "r") })
	eventually(t, "Redis has granted it", func() bool { return b.held(t, "r") != "" })
	cancel()
	require.Error(t, receive(t, result).err)
	closing, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	require.NoError(t, l.Close(closing))
	require.Empty(t, b.held(t, "r"))
}

func TestClose_isBounded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, proxy := b.proxied(t, func(o *redis.Options) { o.ReadTimeout = limit; o.MaxRetries = -1 })
	l := b.on(t, client, nil)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	proxy.SwallowOnly(faultproxy.ToClient)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := l.TryLock(ctx, "r")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	start := time.Now()
	require.ErrorIs(t, l.Close(ctx), context.DeadlineExceeded)
	require.Less(t, time.Since(start), limit/3)
	proxy.Cut()
}

// A lease whose answer took longer than it can be trusted is none.
func TestTryLock_whoseAnswerComesTooLate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, proxy := b.proxied(t, func(o *redis.Options) { o.ReadTimeout = limit })
	const ttl = 2 * time.Second
	l := b.on(t, client, &redislease.Config{TTL: ttl})
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	proxy.Delay(faultproxy.ToClient, ttl*12/10)
	_, err := l.TryLock(t.Context(), "r")
	require.ErrorIs(t, err, redislease.ErrUnavailable)
	require.NotErrorIs(t, err, redislease.ErrNotAcquired)
	result := inBackground(func() (*redislease.Lease, error) { return l.Lock(t.Context(), "r") })
	eventually(t, "it tries again", func() bool {
		n, err := b.observer.Get(t.Context(), b.key("r")+":token").Int()
		return err == nil && n >= 3
	})
	proxy.Delay(faultproxy.ToClient, 0)
	a := receive(t, result)
	require.NoError(t, a.err)
	require.NoError(t, a.lease.Err())
}

func TestLock_givesAWholeLeaseAfterALongWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const ttl = 8 * time.Second
	l := b.leaser(t, &redislease.Config{TTL: ttl})
	require.NoError(t, b.observer.Set(t.Context(), b.key("r"), "somebody", ttl).Err())
	lease := mustLock(t, l, "r")
	require.Greater(t, time.Until(lease.SafeUntil()), ttl/4)
}

func TestLock_wakesAtTheEndOfTheLeaseThatItSaw(t *testing.T) {
	t.Parallel()
	b := setup(t)
	waiters := b.leaser(t, nil)
	require.NoError(t, b.observer.Set(t.Context(), b.key("r"), "somebody", 500*time.Millisecond).Err())
	results := make(chan error, 50)
	for range cap(results) {
		// Ends with its turn; the test waits.
		go func() {
			results <- waiters.Do(t.Context(), "r", func(context.Context, *redislease.Lease) error { return nil })
		}()
	}
	for range cap(results) {
		require.NoError(t, receive(t, results))
	}
}

// The subscription breaks just when the lock is released: the new one finds out.
func TestLock_whoseSubscriptionBreaks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, proxy := b.proxied(t)
	holder, l := b.leaser(t, &redislease.Config{TTL: time.Hour}), b.on(t, client, &redislease.Config{TTL: time.Hour})
	lease := mustLock(t, holder, "r")
	result := inBackground(func() (*redislease.Lease, error) { return l.Lock(t.Context(), "r") })
	subscribed := func() bool {
		n, err := b.observer.PubSubNumSub(t.Context(), b.key("r")).Result()
		require.NoError(t, err)
		return n[b.key("r")] == 1
	}
	eventually(t, "it is subscribed", subscribed)
	proxy.RefuseNew(true)
	proxy.Cut()
	eventually(t, "it is not any more", func() bool { return !subscribed() })
	require.NoError(t, lease.Unlock(t.Context()))
	proxy.RefuseNew(false)
	require.NoError(t, receive(t, result).err)
}

func TestLock_isServedInTheOrderOfTheCalls(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.leaser(t, nil)
	lease := mustLock(t, b.leaser(t, nil), "r")
	var results []<-chan attempt
	for i := range 10 {
		results = append(results, inBackground(func() (*redislease.Lease, error) { return l.Lock(t.Context(), "r") }))
		eventually(t, "it is in line", func() bool { return redislease.Waiting(l, b.key("r")) == i+1 })
	}
	require.NoError(t, lease.Unlock(t.Context()))
	last := lease.Token()
	for _, result := range results {
		a := receive(t, result)
		require.NoError(t, a.err)
		require.Equal(t, last+1, a.lease.Token())
		last = a.lease.Token()
		require.NoError(t, a.lease.Unlock(t.Context()))
	}
}

// A thousand callers that wait cost the server what one does.
func TestLock_ofAThousandCallersAsksOnce(t *testing.T) {
	t.Parallel()
	b := alone(t)
	holder := b.leaser(t, &redislease.Config{TTL: time.Hour})
	mustLock(t, holder, "r")
	l := b.leaser(t, nil)
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for range 1000 {
		// Ends with ctx; the test waits.
		work.Go(func() {
			if _, err := l.Lock(ctx, "r"); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	eventually(t, "all wait", func() bool { return redislease.Waiting(l, b.key("r")) == 1000 })
	require.LessOrEqual(t, b.calls(t, "evalsha"), int64(6))
	list, err := b.observer.ClientList(t.Context()).Result()
	require.NoError(t, err)
	require.LessOrEqual(t, len(splitLines(list)), 7)
	cancel()
	work.Wait()
	require.LessOrEqual(t, b.calls(t, "evalsha"), int64(10))
	eventually(t, "goroutines are gone", func() bool { return runtime.NumGoroutine() <= before+20 })
}

func TestLock_onManyKeysHasOneSubscription(t *testing.T) {
	t.Parallel()
	b := alone(t)
	const keys = 300
	for i := range keys {
		require.NoError(t, b.observer.Set(t.Context(), b.key(fmt.Sprint(i)), "somebody", time.Hour).Err())
	}
	l := b.leaser(t, nil, func(o *redis.Options) { o.PoolSize = 5 })
	ctx, cancel := context.WithCancel(t.Context())
	var work sync.WaitGroup
	for i := range keys {
		// Ends with ctx; the test waits.
		work.Go(func() { _, _ = l.Lock(ctx, fmt.Sprint(i)) })
	}
	eventually(t, "all are subscribed", func() bool {
		channels, err := b.observer.PubSubChannels(t.Context(), "*").Result()
		require.NoError(t, err)
		return len(channels) == keys
	})
	list, err := b.observer.ClientList(t.Context()).Result()
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(list, " sub="+fmt.Sprint(keys)))
	cancel()
	work.Wait()
	eventually(t, "all are unsubscribed", func() bool {
		channels, err := b.observer.PubSubChannels(t.Context(), "*").Result()
		require.NoError(t, err)
		return len(channels) == 0
	})
}
