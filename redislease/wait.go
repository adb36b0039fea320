package redislease

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/lockerr"
)

// line is the calls of this process that wait for one lock, in the order in which
// they came. The first one asks Redis.
type line struct {
	waiters []*waiter
	signal  chan struct{} // holds one; that asking is worth it
	askAt   time.Duration // nobody can get the lock before, as far as is known
}

// waiter is a call that waits.
type waiter struct {
	turn chan struct{} // closed when it is the first
}

const (
	// shortestWait and jitter are added to what Redis says how long a lease lasts.
	shortestWait = time.Millisecond

	// leastPoll is how often those who wait ask at least, if that is more than a TTL.
	leastPoll = time.Second
)

// wait waits until the lock is granted, ctx ends or the Leaser is closed.
func (l *Leaser) wait(ctx context.Context, resource string, k keys) (*Lease, error) {
	ln, w := l.join(k.lock)
	defer l.leave(k.lock, ln, w)
	select {
	case <-w.turn:
	case <-ctx.Done():
		return nil, lockerr.Ended(ctx)
	case <-l.closing:
		return nil, ErrClosed
	}
	for {
		if err := l.untilWorthIt(ctx, ln); err != nil {
			return nil, err
		}
		lease, left, err := l.attempt(ctx, resource, k)
		now := l.now()
		switch {
		case lease != nil:
			ln.askAt = now + l.config.TTL // for the next one
			return lease, nil
		case errors.Is(err, errTooLate):
			ln.askAt = 0
		case err != nil:
			ln.askAt = 0
			return nil, err
		default:
			poll := max(l.config.TTL, leastPoll)
			if left < 0 || left > poll {
				left = poll
			}
			ln.askAt = now + left + shortestWait
			l.signals.subscribe(k.lock)
		}
	}
}

// untilWorthIt waits until the lock may be free.
func (l *Leaser) untilWorthIt(ctx context.Context, ln *line) error {
	pause := ln.askAt - l.now()
	if pause <= 0 {
		return nil
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ln.signal:
	case <-timer.C:
	case <-ctx.Done():
		return lockerr.Ended(ctx)
	case <-l.closing:
		return ErrClosed
	}
	return nil
}

// join puts a call at the end of a lock's line.
func (l *Leaser) join(lock string) (*line, *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := l.lines[lock]
	if ln == nil {
		ln = &line{signal: make(chan struct{}, 1)}
		l.lines[lock] = ln
	}
	w := &waiter{turn: make(chan struct{})}
	ln.waiters = append(ln.waiters, w)
	if len(ln.waiters) == 1 {
		close(w.turn)
	}
	return ln, w
}

// leave takes a call out of the line, and passes its turn on.
func (l *Leaser) leave(lock string, ln *line, w *waiter) {
	l.mu.Lock()
	i := slices.Index(ln.waiters, w)
	ln.waiters = slices.Delete(ln.waiters, i, i+1)
	isEmpty := len(ln.waiters) == 0
	if isEmpty {
		delete(l.lines, lock)
	} else if i == 0 {
		close(ln.waiters[0].turn)
	}
	l.mu.Unlock()
	if isEmpty {
		l.signals.unsubscribe(lock)
	}
}

// wakeLine has the first of a lock's line ask Redis.
func (l *Leaser) wakeLine(lock string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ln := l.lines[lock]; ln != nil {
		select {
		case ln.signal <- struct{}{}:
		default: // it will ask
		}
	}
}
