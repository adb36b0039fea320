package advisory

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// beginConnect counts one more pinned connection, before it is waited for, so
// that a Locker never takes the reserve. It waits only for connections that are
// on their way back. From now on stop ends the wait for a connection.
func (l *Locker) beginConnect(ctx context.Context, ln *line, stop context.CancelFunc) error {
	for {
		changed, err := l.tryBeginConnect(ln, stop)
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

// tryBeginConnect returns a channel that is closed when it is worth another
// try, and nil when it is decided.
func (l *Locker) tryBeginConnect(ln *line, stop context.CancelFunc) (<-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.state, ln.stopConnecting = connecting, stop
	if len(ln.waiters) == 0 {
		stop() // the last one left before stop was there to be called
	}
	if l.pinned < l.limit {
		l.pinned++
		return nil, nil
	}
	if l.anyLeavingLocked() {
		return l.changed, nil
	}
	return nil, fmt.Errorf("%w: locks have pinned %d of the pool's %d connections and Config.Reserve leaves %d to others; "+
		"allow the pool more connections, hold fewer locks at once or give the Locker a pool of its own",
		ErrPoolExhausted, l.pinned, l.size, l.config.Reserve)
}

// anyLeavingLocked reports whether a connection is on its way back: that of a
// lock which is being unlocked, or of a wait that was given up.
func (l *Locker) anyLeavingLocked() bool {
	for _, ln := range l.lines {
		isEnding := ln.state == contending || ln.state == held && ln.holder.claimed.Load()
		if isEnding && len(ln.waiters) == 0 {
			return true
		}
	}
	return false
}

// changedLocked wakes those who wait in beginConnect. The caller holds mu.
func (l *Locker) changedLocked() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Locker) endConnect(ln *line, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.stopConnecting = nil
	if err == nil {
		ln.state = contending
		return
	}
	l.pinned--
	l.changedLocked()
}

// unpin ends a hold and counts it out only then.
func (l *Locker) unpin(end func()) {
	end()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pinned--
	l.changedLocked()
}

// pin waits for a connection of the pool.
//
// A pool asks a connection that has idled for a sign of life, and by default
// waits for it without end. So the first waits are bounded, each of which rids
// the pool of one connection that has gone silent, at the price of this one's
// place among those who wait for the pool. After as many as the pool can have
// there is none left, and the wait goes on as long as ctx.
func (l *Locker) pin(ctx context.Context) (*connhold.Hold, error) {
	for range l.size {
		round, cancel := context.WithTimeout(ctx, l.config.HeartbeatTimeout)
		hold, err := connhold.Pin(round, l.pool)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return hold, err
		}
	}
	return connhold.Pin(ctx, l.pool)
}

// endedWaiting is the error of a call whose ctx ended while it waited.
func (l *Locker) endedWaiting(ctx context.Context, state lineState) error {
	err := fmt.Errorf("waiting for %s: %w", state, ended(ctx))
	if stat := l.pool.Stat(); state == connecting && stat.AcquiredConns() >= stat.MaxConns() {
		err = fmt.Errorf("%w: all %d connections of the pool are in use; %w", ErrPoolExhausted, stat.MaxConns(), err)
	}
	return err
}
