//go:build unix

package redislease_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
	"github.com/pgadvisory/pgadvisory/redislease"
)

// once is a change of options to a client that repeats nothing, and waits for its answers.
func once(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, -1 }

// A context that ends just when its call does interrupts no other one on that
// connection.
func TestTryLock_whoseContextEndsWithIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l := b.leaser(t, nil, once, func(o *redis.Options) { o.PoolSize = 1 })
	for range 1000 {
		ctx, cancel := context.WithCancel(t.Context())
		var ending sync.WaitGroup
		ending.Go(cancel)
		if lease, err := l.TryLock(ctx, "ends"); err == nil {
			_ = lease.Unlock(t.Context()) // the next one is another resource
		}
		lease, err := l.TryLock(context.Background(), "r")
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		ending.Wait()
	}
}

// hooked is a connection that calls back after its next Write, and tells of each SetDeadline.
type hooked struct {
	net.Conn
	write *atomic.Pointer[func()]
	set   chan struct{}
}

func (c *hooked) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if f := c.write.Swap(nil); f != nil {
		(*f)()
	}
	return n, err
}

func (c *hooked) SetDeadline(t time.Time) error {
	err := c.Conn.SetDeadline(t)
	select {
	case c.set <- struct{}{}:
	default: // nobody waits
	}
	return err
}

// The context ends before the client waits for the answer, and sets a deadline for that.
func TestTryLock_whoseContextEndsAmidTheRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, proxy := b.proxied(t, once)
	var write atomic.Pointer[func()]
	set := make(chan struct{}, 1)
	options := *client.Options()
	options.MaxRetries, options.ReadTimeout, options.PushNotificationProcessor = -1, -1, nil
	dial := options.Dialer
	options.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &hooked{conn, &write, set}, err
	}
	hookedClient := redis.NewClient(&options)
	t.Cleanup(func() { require.NoError(t, hookedClient.Close()) })
	l := b.on(t, hookedClient, nil)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	proxy.SwallowOnly(faultproxy.ToClient)
	ctx, cancel := context.WithCancel(t.Context())
	amid := func() {
		select {
		case <-set:
		default:
		}
		cancel()
		receive(t, set)
	}
	write.Store(&amid)
	result := inBackground(func() (*redislease.Lease, error) { return l.TryLock(ctx, "r") })
	require.ErrorIs(t, receive(t, result).err, context.Canceled)
	proxy.Cut()
}

func TestTryLock_waitsForAConnectionWithinItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, proxy := b.proxied(t, once, func(o *redis.Options) { o.PoolSize = 1 })
	l := b.on(t, client, nil)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	proxy.SwallowOnly(faultproxy.ToClient)
	hangs := inBackground(func() (*redislease.Lease, error) { return l.TryLock(context.Background(), "hangs") })
	eventually(t, "it was granted", func() bool { return b.held(t, "hangs") != "" })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := l.TryLock(ctx, "r")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	waits := inBackground(func() (*redislease.Lease, error) { return l.TryLock(context.Background(), "r") })
	closed := make(chan error, 1)
	// Ends with the Leaser, which ends the calls; the test waits.
	go func() { closed <- l.Close(t.Context()) }()
	require.ErrorIs(t, receive(t, hangs).err, redislease.ErrClosed)
	require.ErrorIs(t, receive(t, waits).err, redislease.ErrClosed)
	proxy.Cut()
	require.NoError(t, receive(t, closed))
	eventually(t, "what was given up is released", func() bool { return len(b.locks(t)) == 0 })
}

// The connection of an idle Leaser has ended: that is seen before a command is sent.
func TestTryLock_afterItsConnectionHasEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, proxy := b.proxied(t, once)
	l := b.on(t, client, nil)
	for range 5 {
		lease, err := l.TryLock(t.Context(), "r")
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
		proxy.Cut()
	}
}

// A client that repeats no command has a Leaser that does not either.
func TestTryLock_ofAClientThatRepeatsNothing(t *testing.T) {
	t.Parallel()
	b := alone(t)
	client, proxy := b.proxied(t, func(o *redis.Options) { o.MaxRetries, o.ReadTimeout = -1, 300*time.Millisecond })
	l := b.on(t, client, nil)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	proxy.SwallowOnly(faultproxy.ToClient)
	_, err := l.TryLock(t.Context(), "r")
	require.ErrorIs(t, err, redislease.ErrUnavailable)
	proxy.Cut()
	counter, err := b.observer.Get(t.Context(), b.key("r")+":token").Int64()
	require.NoError(t, err)
	require.Equal(t, int64(1), counter)
}

func TestLeaser_closesConnectionsThatItNoLongerNeeds(t *testing.T) {
	t.Parallel()
	b := alone(t)
	l := b.leaser(t, nil)
	redislease.KeepLanes(l, 100*time.Millisecond)
	connections := func() int {
		list, err := b.observer.ClientList(t.Context()).Result()
		require.NoError(t, err)
		return len(splitLines(list))
	}
	require.NoError(t, b.observer.Do(t.Context(), "CLIENT", "PAUSE", "500", "WRITE").Err())
	var work sync.WaitGroup
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		// Ends with its call; the test waits.
		work.Go(func() {
			if _, err := l.TryLock(t.Context(), name); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	require.GreaterOrEqual(t, connections(), 9)
	eventually(t, "one is left for calls", func() bool {
		require.NoError(t, mustLock(t, l, "r").Unlock(t.Context()))
		return connections() <= 3 // and the observer's, and that for what must not wait
	})
}

// A call is interrupted also on a Leaser whose leases were checked, each of which the
// client may ask on another connection.
func TestTryLock_returnsWithItsContextAfterACheck(t *testing.T) {
	t.Parallel()
	b := setup(t)
	client, proxy := b.proxied(t, once)
	l := b.on(t, client, nil)
	lease := mustLock(t, l, "r")
	require.NoError(t, lease.Check(t.Context()))
	proxy.SwallowOnly(faultproxy.ToClient)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	for _, call := range []func() error{
		func() error { _, err := l.TryLock(ctx, "another"); return err },
		func() error { return lease.Check(ctx) },
	} {
		err := make(chan error, 1)
		// Ends with its call; the test waits.
		go func() { err <- call() }()
		require.ErrorIs(t, receive(t, err), context.DeadlineExceeded)
	}
	proxy.Cut()
}
