package redislease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pgadvisory/pgadvisory/internal/lockerr"
)

// Leaser takes locks in Redis. It is safe for concurrent use. Once it was used it
// must be closed.
type Leaser struct {
	client redis.UniversalClient // the application's
	own    redis.UniversalClient // for what must not wait behind that
	lanes  *lanes                // for calls that end with their context; nil on a client that can't
	config Config
	now    func() time.Duration // on a clock that counts sleep

	closing chan struct{} // closed by Close
	work    sync.WaitGroup
	signals *signals
	keeper  *keeper

	// mu guards the fields below. Nothing blocks under it. It is taken before that of
	// a line.
	mu     sync.Mutex
	closed bool
	lines  map[string]*line // of those who wait, by the lock's key
}

// New returns a Leaser that locks with client. It does not connect. A nil config means
// the defaults. The caller closes client, after the Leaser.
func New(client redis.UniversalClient, config *Config) (*Leaser, error) {
	if client == nil {
		return nil, errors.New("redislease: New needs a client, and got nil")
	}
	c, err := config.withDefaults()
	if err != nil {
		return nil, err
	}
	l := &Leaser{
		client:  client,
		own:     client,
		config:  c,
		now:     systemClock(),
		closing: make(chan struct{}),
		lines:   make(map[string]*line),
	}
	if !c.ShareClient {
		l.own = clone(client)
		if single, ok := client.(*redis.Client); ok {
			l.lanes = newLanes(single, l.closing)
		}
	}
	l.signals = newSignals(l)
	l.keeper = newKeeper(l)
	return l, nil
}

// TryLock takes the lock of a resource if it is free, in one round trip, in which the
// token of the lease is drawn too.
//
// ctx bounds the call and not the hold. The error is ErrNotAcquired when another
// holds the lock; ErrInvalidResource or ErrClosed; ctx's error, soon after ctx has
// ended, whatever the client is set to; ErrUnavailable in other cases. On an error no
// lease is kept: what Redis may have granted meanwhile is released in the background,
// or ends with its TTL where Redis can't be reached.
func (l *Leaser) TryLock(ctx context.Context, resource string) (*Lease, error) {
	keys, err := l.check(ctx, resource)
	if err != nil {
		return nil, wrap("lock", resource, err)
	}
	lease, _, err := l.attempt(ctx, resource, keys)
	if err == nil && lease == nil {
		err = errHeldElsewhere
	}
	if err != nil {
		return nil, wrap("lock", resource, err)
	}
	return lease, nil
}

// Lock waits until the lock is granted or ctx ends. Calls of one Leaser for one
// resource are served in the order in which they came, and only the first of them asks
// Redis: when the lock was released, which Redis tells, and when the lease that it
// saw would have ended. Between processes the order is not strict.
//
// Where the user of Redis may not subscribe to the lock's channel, only the end of the
// lease wakes those who wait. The lock is not re-entrant.
//
// ctx bounds the wait and not the hold. Errors are as with TryLock, but for
// ErrNotAcquired.
func (l *Leaser) Lock(ctx context.Context, resource string) (*Lease, error) {
	keys, err := l.check(ctx, resource)
	if err != nil {
		return nil, wrap("lock", resource, err)
	}
	lease, err := l.wait(ctx, resource, keys)
	if err != nil {
		return nil, wrap("lock", resource, err)
	}
	return lease, nil
}

var errHeldElsewhere = fmt.Errorf("%w: another holds it", ErrNotAcquired)

// check says what stands against a call before Redis is asked.
func (l *Leaser) check(ctx context.Context, resource string) (keys, error) {
	if ctx.Err() != nil {
		return keys{}, lockerr.Ended(ctx)
	}
	select {
	case <-l.closing:
		return keys{}, ErrClosed
	default:
	}
	return keysOf(l.config.Prefix, l.config.Counters, resource)
}

// Close ends all leases and releases them, ends what waits and what runs in the
// background, and closes the connections that New made. It does not close the client
// that New was given. ctx bounds it; what Redis was not told to release by then ends by
// its TTL. It returns the errors of the releases. A second call does nothing.
func (l *Leaser) Close(ctx context.Context) error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	close(l.closing)
	l.mu.Unlock()
	if l.lanes != nil {
		l.lanes.close()
	}

	done := make(chan error, 1)
	// Ends with the work, each part of which the client's timeouts bound.
	go func() {
		err := l.keeper.closeLeases(ctx)
		l.signals.close()
		l.work.Wait()
		if l.own != l.client {
			_ = l.own.Close() // there is nothing to do about an error
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%sclose: %w", prefix, lockerr.Ended(ctx))
	}
}

// begin begins something that Close waits for, until work.Done. It reports false if
// Close was called.
func (l *Leaser) begin() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.work.Add(1)
	return true
}

// spawn runs f on a goroutine that Close waits for. It reports false, and runs
// nothing, if Close was called.
func (l *Leaser) spawn(f func()) bool {
	if !l.begin() {
		return false
	}
	go func() {
		defer l.work.Done()
		f()
	}()
	return true
}
