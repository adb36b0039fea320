package advisory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"
)

// TryLockAll takes all of the locks or none, on one connection and in one round
// trip. Keys that are given twice, or that are the same lock, are locked once.
// The Lock holds them together: one Unlock frees them all, and they are lost
// together. ErrNotAcquired means that another holds one of them; other errors are
// as with TryLock, and ErrInvalidKey for no keys at all.
func (l *Locker) TryLockAll(ctx context.Context, keys ...Key) (*Lock, error) {
	return l.acquireAll(ctx, "try lock", keys, false)
}

// LockAll waits until it has all of the locks, and holds none of them when it
// returns an error. It takes them in one order, whatever the order of the keys:
// those of one bigint before those of two ints, each by its number. So calls of
// LockAll can't deadlock with each other. Where the server finds a deadlock
// with something else, LockAll gives back what it has and begins anew. While it
// waits for one lock it has those before it. ctx, errors and what else is said of
// the wait are as with Lock.
func (l *Locker) LockAll(ctx context.Context, keys ...Key) (*Lock, error) {
	return l.acquireAll(ctx, "lock", keys, true)
}

// call is a call for several locks. Its fields but stop are guarded by the
// Locker's mu.
type call struct {
	request
	occupants []*occupant
	wait      bool
	stop      context.CancelCauseFunc
	abandoned bool
	result    chan result // takes one without blocking

	connecting atomic.Bool // waits for a connection
}

func (l *Locker) acquireAll(ctx context.Context, verb string, keys []Key, wait bool) (*Lock, error) {
	start := time.Now()
	keys = slices.Clone(keys)
	a := Attempt{Keys: keys, Try: !wait}
	telling := l.attempting(ctx, a)
	lock, err := l.awaitAll(ctx, keys, wait)
	if err != nil {
		err = wrap(verb, keys, err)
	}
	a.Waited, a.Lock, a.Err = time.Since(start), lock, err
	l.attempted(telling, a)
	return lock, err
}

func (l *Locker) awaitAll(ctx context.Context, keys []Key, wait bool) (*Lock, error) {
	if err := validateAll(keys); err != nil {
		return nil, err
	}
	switch {
	case ctx == nil:
		return nil, errNilContext
	case ctx.Err() != nil:
		return nil, ended(ctx)
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c := &call{request: request{keys: keys, targets: targetsOf(keys)}, wait: wait, stop: stop, result: make(chan result, 1)}
	if err := l.takeTurns(ctx, c); err != nil {
		return nil, err
	}
	if !l.start(c, func() { l.compete(ctx, c) }) {
		l.vacate(c.targets, c.occupants, nil)
		return nil, ErrClosed
	}
	select {
	case r := <-c.result:
		return r.lock, r.err
	case <-ctx.Done():
	}
	if l.abandon(c) {
		return nil, l.endedCall(ctx, c)
	}
	r := <-c.result // it came in the same instant
	return r.lock, r.err
}

func (l *Locker) endedCall(ctx context.Context, c *call) error {
	if errors.Is(context.Cause(ctx), ErrClosed) {
		return ErrClosed
	}
	if c.connecting.Load() {
		return l.endedConnecting(ctx)
	}
	return fmt.Errorf("waiting for the locks: %w", ended(ctx))
}

// takeTurns gets the call its places in the lines of all its locks. On an error
// it has none.
func (l *Locker) takeTurns(ctx context.Context, c *call) error {
	if !c.wait {
		occupants := occupantsOf(c.targets)
		if err := l.occupy(c.targets, occupants); err != nil {
			return err
		}
		c.occupants = occupants
		return nil
	}
	for _, t := range c.targets {
		w := &waiter{ctx: ctx, request: c.request, shared: t.shared, turn: true, result: make(chan result, 1)}
		r, err := l.awaitIn(w, t.tag)
		if err != nil {
			l.vacate(c.targets[:len(c.occupants)], c.occupants, nil)
			return err
		}
		c.occupants = append(c.occupants, r.occupant)
	}
	return nil
}

// start runs a call's part on the server, unless the Locker is closed.
func (l *Locker) start(c *call, do func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.calls[c] = struct{}{}
	// Ends after an answer of the server, at the latest the one in which its
	// ctx has ended; Close waits for it.
	l.work.Go(do)
	return true
}

// abandon reports whether the caller leaves before the call was answered.
func (l *Locker) abandon(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, asking := l.calls[c]; !asking {
		return false
	}
	c.abandoned = true
	l.leaving++
	return true
}

// compete asks the server until it has granted all locks of the call, or the
// call is over.
func (l *Locker) compete(ctx context.Context, c *call) {
	contest := &contest{}
	for {
		err := contest.advance(ctx, l, c)
		switch {
		case err == nil && contest.granted && l.deliver(ctx, c, contest):
			return
		case err == nil && ctx.Err() == nil:
			continue
		}
		if ctx.Err() != nil {
			err = l.endedCall(ctx, c)
		}
		contest.giveBack(l)
		l.vacate(c.targets, c.occupants, nil)
		l.conclude(c, err)
		return
	}
}

// advance makes one step towards the grant.
func (c *contest) advance(ctx context.Context, l *Locker, call *call) error {
	if c.hold == nil || c.known == nil {
		call.connecting.Store(true)
		if err := c.connectAndMeet(ctx, l); err != nil || c.hold == nil {
			return err
		}
		call.connecting.Store(false)
	}
	if err := c.ask(ctx, l, call.request, call.wait && c.asked); err != nil {
		if c.fail(l, err) {
			return nil
		}
		return explain(err)
	}
	if !c.granted && !call.wait && c.known != nil {
		return fmt.Errorf("%w: another session holds one of the locks", ErrNotAcquired)
	}
	return nil
}

// deliver answers the call with a Lock, unless its caller has left.
func (l *Locker) deliver(ctx context.Context, c *call, won *contest) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.abandoned || ctx.Err() != nil {
		return false
	}
	delete(l.calls, c)
	c.result <- result{lock: l.newLock(c.request, c.occupants, won)}
	return true
}

// conclude ends a call that has not got its locks.
func (l *Locker) conclude(c *call, err error) {
	if l.end(c) {
		c.result <- result{err: err}
	}
}

// end ends a call, and reports whether its caller is still there.
func (l *Locker) end(c *call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.calls, c)
	if c.abandoned {
		l.leaving--
		l.changedLocked()
	}
	return !c.abandoned
}
