package advisory

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

var errPoolClosed = errors.New("closed pool")

// reserve counts one more pinned connection, before the pool is asked for it, so that a
// Locker never takes the reserve. It waits only for connections that are on their way
// back.
func (l *Locker) reserve(ctx context.Context) error {
	for {
		changed, err := l.tryReserve()
		if changed == nil {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryReserve returns a channel that is closed when it is worth another try, and nil when
// it is decided.
func (l *Locker) tryReserve() (<-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pinned < l.limit {
		l.pinned++
		return nil, nil
	}
	if l.anyReleasingLocked() {
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		return l.changed, nil
	}
	return nil, fmt.Errorf("%w: locks have pinned %d of the pool's %d connections and Config.Reserve leaves %d to others; "+
		"allow the pool more connections, hold fewer locks at once or give the Locker a pool of its own",
		ErrPoolExhausted, l.pinned, l.size, l.config.Reserve)
}

// anyReleasingLocked reports whether a connection is on its way back: that of a lock which
// is being unlocked, or of a wait that was given up.
func (l *Locker) anyReleasingLocked() bool {
	if l.releasing > 0 {
		return true
	}
	for _, q := range l.queues {
		if q.phase != idle && len(q.waiters) == 0 {
			return true
		}
	}
	return false
}

// capacityChangedLocked wakes those who wait in reserve. The caller holds mu.
func (l *Locker) capacityChangedLocked() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// unreserve ends the pinning of a connection and counts it out only then.
func (l *Locker) unreserve(end func()) {
	end()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pinned--
	l.capacityChangedLocked()
}

// pinOnce waits for a connection of the pool as long as ctx, which must have a deadline:
// see pin.
func (l *Locker) pinOnce(ctx context.Context) (*connhold.Hold, error) {
	return connhold.Pin(ctx, l.pool, &l.timers)
}

// pin waits for a connection of the pool.
//
// A pool asks a connection that has idled for a sign of life, and by default waits for
// it without end; for up to a minute longer if ctx is cancelled meanwhile, with the
// connection counted. It hands on a deadline. So each wait here has one. One that has
// passed rids the pool of a connection that has gone silent. The others are asked then,
// all at once, instead of one after the other.
//
// Each round loses the caller's place in the pool's queue. So each round lasts twice as
// long as the last one. A caller then gets its turn in a busy pool, and each further
// silent connection at most doubles the wait.
func (l *Locker) pin(ctx context.Context) (*connhold.Hold, error) {
	for limit := l.config.HeartbeatTimeout; ; limit *= 2 {
		round, cancel := context.WithTimeout(ctx, limit)
		conn, err := l.pinOnce(round)
		isLate := round.Err() != nil
		cancel()
		if err == nil || !isLate || ctx.Err() != nil {
			return conn, err
		}
		connhold.Cull(ctx, l.pool, l.config.HeartbeatTimeout)
	}
}

// pinAfterCull is pin after a round that was in vain.
func (l *Locker) pinAfterCull(ctx context.Context) (*connhold.Hold, error) {
	connhold.Cull(ctx, l.pool, l.config.HeartbeatTimeout)
	return l.pin(ctx)
}

// endedConnecting is the error of a call whose ctx ended while it waited for a
// connection.
func (l *Locker) endedConnecting(ctx context.Context) error {
	err := fmt.Errorf("%w: %w", errConnecting, ended(ctx))
	if stat := l.pool.Stat(); stat.AcquiredConns() >= stat.MaxConns() {
		err = fmt.Errorf("%w: all %d connections of the pool are in use; %w", ErrPoolExhausted, stat.MaxConns(), err)
	}
	return err
}
