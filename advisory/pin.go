package advisory

import (
	"context"
	"errors"
	"fmt"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

var errPoolClosed = errors.New("closed pool")

// connect pins a connection for the contest. Its session is to be met then.
func (c *contest) connect(ctx context.Context, l *Locker, pin func(*Locker, context.Context) (*connhold.Hold, error)) error {
	if err := l.reserve(ctx); err != nil {
		return err
	}
	hold, err := pin(l, ctx)
	if err != nil {
		l.unpin(func() {})
		if err.Error() == "closed pool" { // pgxpool has no value to test for
			err = errPoolClosed
		}
		return fmt.Errorf("get a connection: %w", explain(err))
	}
	c.hold = hold
	hold.Panicked = l.panicked
	if known := knownOf(hold); known != nil {
		c.know(known, l)
	}
	return nil
}

// meet makes the contest's session known. Where that has died already, the
// contest is without a connection then.
func (c *contest) meet(ctx context.Context, l *Locker) error {
	known, err := l.meet(ctx, c.hold)
	if err != nil {
		if wasStale := c.fail(l, err); wasStale && !isRefusal(err) {
			return nil // without a connection: to be called again
		}
		return explain(err)
	}
	c.know(known, l)
	return nil
}

func (c *contest) know(known *acquaintance, l *Locker) {
	c.known, c.way = known, known.way(l.config.VanishTimeout)
}

// connectAndMeet is both. Without an error the contest has a connection, or is to
// be connected anew.
func (c *contest) connectAndMeet(ctx context.Context, l *Locker) error {
	if c.hold == nil {
		if err := c.connect(ctx, l, (*Locker).pin); err != nil {
			return err
		}
	}
	if c.known != nil {
		return nil
	}
	return c.meet(ctx, l)
}

// meetFor meets the session of a connection for w.
func (c *contender) meetFor(w *waiter) {
	l, ln := c.locker, c.line
	if err := c.meet(w.ctx, l); err != nil {
		l.refuseConnecting(ln, w, err)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.known != nil {
		ln.phase = asking
	}
}

// connectFor pins a connection for w, as long as somebody waits for it.
func (c *contender) connectFor(w *waiter) error {
	l, ln := c.locker, c.line
	var ctx context.Context
	var cancel context.CancelFunc
	pin := (*Locker).pin
	switch {
	case c.self != nil: // one round of pin
		pin = (*Locker).pinOnce
		ctx, cancel = context.WithTimeout(c.self.ctx, l.config.HeartbeatTimeout)
		defer func() { c.isLate = ctx.Err() != nil && c.self.ctx.Err() == nil }()
	case c.isLate:
		pin = (*Locker).pinOn
		fallthrough
	default:
		ctx, cancel = context.WithCancel(context.WithoutCancel(w.ctx))
	}
	defer cancel()
	l.mu.Lock()
	ln.phase, ln.stopConnecting, ln.pending = connecting, cancel, nil
	if len(ln.waiters) == 0 {
		cancel() // the last one left before this was there to be called
	}
	l.mu.Unlock()

	err := c.connect(ctx, l, pin)

	l.mu.Lock()
	ln.stopConnecting = nil
	if err == nil && c.known != nil {
		ln.phase = asking
	}
	l.mu.Unlock()
	if ctx.Err() != nil {
		return nil // all who waited for it have left
	}
	return err
}

// become takes over the connection of a lock that has just been unlocked.
func (c *contest) become(hold *connhold.Hold, l *Locker) {
	c.hold = hold
	if known := acquaintanceOf(hold); known != nil { // else to be met anew
		c.know(known, l)
	}
}

// reserve counts one more pinned connection, before it is waited for, so that a
// Locker never takes the reserve. It waits only for connections that are on
// their way back.
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

// tryReserve returns a channel that is closed when it is worth another try, and
// nil when it is decided.
func (l *Locker) tryReserve() (<-chan struct{}, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pinned < l.limit {
		l.pinned++
		return nil, nil
	}
	if l.anyLeavingLocked() {
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		return l.changed, nil
	}
	return nil, fmt.Errorf("%w: locks have pinned %d of the pool's %d connections and Config.Reserve leaves %d to others; "+
		"allow the pool more connections, hold fewer locks at once or give the Locker a pool of its own",
		ErrPoolExhausted, l.pinned, l.size, l.config.Reserve)
}

// anyLeavingLocked reports whether a connection is on its way back: that of a
// lock which is being unlocked, or of a wait that was given up.
func (l *Locker) anyLeavingLocked() bool {
	if l.leaving > 0 {
		return true
	}
	for _, ln := range l.lines {
		if ln.contended && len(ln.waiters) == 0 {
			return true
		}
	}
	return false
}

// changedLocked wakes those who wait in reserve. The caller holds mu.
func (l *Locker) changedLocked() {
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}

// unpin ends a hold and counts it out only then.
func (l *Locker) unpin(end func()) {
	end()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pinned--
	l.changedLocked()
}

// pinOnce waits for a connection of the pool as long as ctx, which must have a
// deadline: see pin.
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
		hold, err := l.pinOnce(round)
		isLate := round.Err() != nil
		cancel()
		if err == nil || !isLate || ctx.Err() != nil {
			return hold, err
		}
		connhold.Cull(ctx, l.pool, l.config.HeartbeatTimeout)
	}
}

// pinOn is pin after a round that was in vain.
func (l *Locker) pinOn(ctx context.Context) (*connhold.Hold, error) {
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
