//go:build unix

package redislease_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
	"github.com/pgadvisory/pgadvisory/redislease"
)

// over is a Fencer of NewOver with a Leaser.
func (k *kind) over(l *redislease.Leaser) *fencing.Fencer {
	k.Helper()
	f, err := fencing.NewOver(l, k.pool, nil)
	require.NoError(k, err)
	return f
}

// Redis stands still for longer than a holder trusts its lease. The holder stops; its
// writes are accepted until another has the lock, and refused then.
func TestNewOver_whileRedisStandsStill(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*testing.T, *bundle) (goOn func()){
		"SIGSTOP": func(t *testing.T, b *bundle) func() {
			t.Helper()
			require.NoError(t, b.server.Freeze())
			return func() { require.NoError(t, b.server.Thaw()) }
		},
		"CLIENT PAUSE": func(t *testing.T, b *bundle) func() {
			t.Helper()
			require.NoError(t, b.observer.Do(t.Context(), "CLIENT", "PAUSE", "3000").Err())
			return func() {}
		},
		"DEBUG SLEEP": func(t *testing.T, b *bundle) func() {
			t.Helper()
			var sleep sync.WaitGroup
			client := b.client(t, func(o *redis.Options) { o.ReadTimeout = limit; o.MaxRetries = -1 })
			require.NoError(t, client.Ping(t.Context()).Err())
			// Ends when the server wakes up; the test waits.
			sleep.Go(func() {
				if err := client.Do(t.Context(), "DEBUG", "SLEEP", "3").Err(); err != nil {
					t.Error(err)
				}
			})
			return sleep.Wait
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, b := newKind(t), alone(t, "--enable-debug-command", "yes")
			config := &redislease.Config{TTL: 2 * time.Second, UnlockTimeout: limit}
			a, other := k.over(b.leaser(t, config)), k.over(b.leaser(t, config))
			old := k.lock(a)
			goOn := stop(t, b)
			receive(t, old.Done())
			require.ErrorIs(t, old.Err(), advisory.ErrLost)
			require.NoError(t, k.write(old, 1), "nobody else has the lock")
			goOn()
			current := k.lock(other)
			require.Greater(t, current.Token(), old.Token())
			require.ErrorIs(t, k.write(old, 2), fencing.ErrStale)
			require.NoError(t, k.write(current, 3))
			require.ErrorIs(t, old.Unlock(t.Context()), advisory.ErrLost)
			require.NoError(t, current.Err())
			require.NoError(t, current.Unlock(t.Context()))
		})
	}
}

// What no waiting mends ends Lead, and does not have it try for ever.
func TestNewOver_leadEndsWhereRedisRefuses(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]func(*testing.T, *bundle) func(*redis.Options){
		"NOPERM": func(t *testing.T, b *bundle) func(*redis.Options) {
			t.Helper()
			return b.as(t, "~*", "&*", "+@all", "-@scripting")
		},
		"WRONGPASS": func(t *testing.T, b *bundle) func(*redis.Options) {
			t.Helper()
			b.as(t, "~*", "&*", "+@all")
			return func(o *redis.Options) { o.Username, o.Password = "app", "wrong" }
		},
		"NOAUTH": func(t *testing.T, b *bundle) func(*redis.Options) {
			t.Helper()
			require.NoError(t, b.observer.ConfigSet(t.Context(), "requirepass", "secret").Err())
			return func(*redis.Options) {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k, b := newKind(t), alone(t)
			l := b.leaser(t, nil, options(t, b))
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			for _, err := range []error{
				l.Lead(ctx, "r", nil),
				k.over(l).Lead(ctx, "r", nil),
			} {
				require.ErrorIs(t, err, redislease.ErrUnavailable)
				require.ErrorContains(t, err, name)
				require.NotErrorIs(t, err, context.DeadlineExceeded)
			}
		})
	}
}

// A Lead over Redis outlives a Redis that is away for a while.
func TestNewOver_leadGoesOnWhenRedisIsBack(t *testing.T) {
	t.Parallel()
	k, b := newKind(t), alone(t)
	l := b.leaser(t, nil, func(o *redis.Options) { o.MaxRetries = -1; o.DialerRetries = 1 })
	require.NoError(t, b.server.Kill())
	led := make(chan error, 1)
	// Ends with its term; the test waits.
	go func() {
		led <- k.over(l).Lead(t.Context(), "r", func(context.Context, *fencing.Lease) error { return errWork })
	}()
	require.NoError(t, b.server.Restart(t.Context()))
	require.ErrorIs(t, receive(t, led), errWork)
}

// The service is silent when the draw has failed: the call ends with its context all the
// same, and the lock is given back when that can be.
func TestNewOver_returnsWithItsContextWhileRedisIsSilent(t *testing.T) {
	t.Parallel()
	k, b := newKind(t), setup(t)
	client, proxy := b.proxied(t, once)
	l := b.on(t, client, &redislease.Config{TTL: time.Hour, UnlockTimeout: limit / 2})
	f := k.over(l)
	require.NoError(t, k.lock(f).Unlock(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tx, err := k.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	// The draw waits for somebody who draws.
	_, err = tx.Exec(t.Context(), `SELECT pg_advisory_xact_lock(hashtextextended('r', 0))`)
	require.NoError(t, err)
	done := make(chan error, 1)
	// Ends with ctx; the test waits.
	go func() {
		_, err := f.Lock(ctx, "r")
		done <- err
	}()
	eventually(t, "Redis has granted it", func() bool { return b.held(t, "r") != "" })
	proxy.SwallowOnly(faultproxy.ToClient)
	cancel()
	start := time.Now()
	require.ErrorIs(t, receive(t, done), context.Canceled)
	require.Less(t, time.Since(start), limit/4)
	proxy.Cut()
	eventually(t, "it is given back", func() bool { return b.held(t, "r") == "" })
}
