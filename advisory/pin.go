package advisory

import (
	"context"
	"fmt"
)

// beginConnect counts one more pinned connection, before it is waited for, so
// that a Locker never takes the reserve; stop will end the wait.
func (l *Locker) beginConnect(ln *line, stop context.CancelFunc) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pinned >= l.limit {
		return fmt.Errorf("%w: locks have pinned %d of the pool's %d connections and Config.Reserve leaves %d to others; "+
			"allow the pool more connections, hold fewer locks at once or give the Locker a pool of its own",
			ErrPoolExhausted, l.pinned, l.size, l.config.Reserve)
	}
	l.pinned++
	ln.state, ln.stopConnecting = connecting, stop
	if len(ln.waiters) == 0 {
		stop() // the last one left before stop was there to be called
	}
	return nil
}

func (l *Locker) endConnect(ln *line, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.state, ln.stopConnecting = contending, nil
	if err != nil {
		l.pinned--
	}
}

// unpin ends a hold and counts it out only then.
func (l *Locker) unpin(end func()) {
	end()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pinned--
}

// endedWaiting is the error of a call whose ctx ended while it waited.
func (l *Locker) endedWaiting(ctx context.Context, state lineState) error {
	err := fmt.Errorf("waiting for %s: %w", state, ended(ctx))
	if stat := l.pool.Stat(); state == connecting && stat.AcquiredConns() >= stat.MaxConns() {
		err = fmt.Errorf("%w: all %d connections of the pool are in use; %w", ErrPoolExhausted, stat.MaxConns(), err)
	}
	return err
}
