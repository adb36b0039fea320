package advisory

import (
	"context"
	"fmt"
	"slices"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/grant"
)

// line is the queue for one lock in this process. It exists while the lock is
// held here or asked for, and either a goroutine contends for it on the server
// on behalf of all who wait, or a Lock holds it:
//
//	       join                      serve
//	(none) ----> connecting, then --------> held
//	   ^         contending                  |
//	   |             ^ |                     | Unlock, loss
//	   |  none waits | | none waits          |
//	   +---------------+--------- < ---------+
//	                 +---- some wait --------+
//
// All fields are guarded by the Locker's mu.
type line struct {
	tag     tag
	state   lineState
	waiters []*waiter // first come, first served
	holder  *Lock     // in state held

	// stopConnecting ends the wait for a connection once nobody needs it; nil
	// when there is no such wait.
	stopConnecting context.CancelFunc
}

type lineState string

// The texts say what a waiter waits for.
const (
	connecting lineState = "a connection"
	contending lineState = "the lock"
	held       lineState = "the lock, which this process holds"
)

// waiter is one call of Lock or TryLock.
type waiter struct {
	ctx    context.Context // asked only whether it has ended
	key    Key
	issue  grant.Issue
	try    bool
	asked  bool        // the server has been asked on behalf of it; the contender's
	result chan result // takes one result without blocking
}

type result struct {
	lock *Lock
	err  error
}

func newWaiter(ctx context.Context, key Key, issue grant.Issue, try bool) *waiter {
	return &waiter{ctx: ctx, key: key, issue: issue, try: try, result: make(chan result, 1)}
}

// join puts w in the line for t, and starts to contend if it is the first. A
// line that all have left, and whose connection is on its way back, is joined
// like any other.
func (l *Locker) join(t tag, w *waiter) (*line, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, ErrClosed
	}
	ln, ok := l.lines[t]
	switch {
	case !ok:
		ln = &line{tag: t, waiters: []*waiter{w}}
		l.lines[t] = ln
		l.contendLocked(ln, nil)
	case w.try && ln.holder != nil:
		return nil, fmt.Errorf("%w: this Locker holds the lock", ErrNotAcquired)
	case w.try && len(ln.waiters) > 0:
		return nil, fmt.Errorf("%w: another call of this Locker asks for the lock", ErrNotAcquired)
	default:
		ln.waiters = append(ln.waiters, w)
		l.changedLocked()
	}
	return ln, nil
}

// contendLocked starts the goroutine that contends for ln, on hold if there is
// one. The caller holds mu.
func (l *Locker) contendLocked(ln *line, hold *connhold.Hold) {
	ln.state, ln.holder = connecting, nil
	if hold != nil {
		ln.state = contending
	}
	l.changedLocked()
	// Ends when the lock is delivered or nobody waits; Close waits for it.
	l.work.Go(func() { l.contend(ln, &contest{hold: hold}) })
}

// leave takes w out of the line because its ctx has ended, and returns the
// error that says so; nil if w has been answered already.
func (l *Locker) leave(ln *line, w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(ln.waiters, w)
	if i < 0 {
		return nil
	}
	ln.waiters = slices.Delete(ln.waiters, i, i+1)
	if len(ln.waiters) == 0 {
		ln.stopConnectingLocked()
	}
	return l.endedWaiting(w.ctx, ln.state)
}

func (ln *line) stopConnectingLocked() {
	if ln.stopConnecting != nil {
		ln.stopConnecting()
	}
}

// head returns the first who still waits, or nil, and whether it is the only
// one.
func (l *Locker) head(ln *line) (w *waiter, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.headLocked(ln), len(ln.waiters) == 1
}

// headLocked also takes those out of the line whose ctx has ended and who are
// about to leave: a lock is not delivered to them.
func (l *Locker) headLocked(ln *line) *waiter {
	for len(ln.waiters) > 0 {
		w := ln.waiters[0]
		if w.ctx.Err() == nil {
			return w
		}
		ln.answerLocked(w, result{err: l.endedWaiting(w.ctx, ln.state)})
	}
	return nil
}

// answerLocked takes w out of the line with its result, unless w has left.
func (ln *line) answerLocked(w *waiter, r result) {
	if i := slices.Index(ln.waiters, w); i >= 0 {
		ln.waiters = slices.Delete(ln.waiters, i, i+1)
		w.result <- r
	}
}

// refuse tells w that it does not get the lock.
func (l *Locker) refuse(ln *line, w *waiter, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.answerLocked(w, result{err: err})
}

// refuseAll tells everybody in the line.
func (l *Locker) refuseAll(ln *line, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.refuseAllLocked(err)
}

func (ln *line) refuseAllLocked(err error) {
	for len(ln.waiters) > 0 {
		ln.answerLocked(ln.waiters[0], result{err: err})
	}
}

// serve makes lock the line's holder and w its owner, and reports false if w
// is not the first any more. The watch starts under mu, so that nobody can
// unlock what is not watched yet.
func (l *Locker) serve(ln *line, w *waiter, lock *Lock) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.headLocked(ln) != w {
		return false
	}
	ln.state, ln.holder = held, lock
	lock.watch()
	ln.answerLocked(w, result{lock: lock})
	return true
}

// passOn goes on after a hold has ended: to the next in the line, on the same
// connection if there is one, or to the line's end.
func (l *Locker) passOn(ln *line, hold *connhold.Hold) {
	for !l.contendOrRemove(ln, hold) {
		// The connection goes back before the line ends: who asks for the
		// lock right after must find both.
		l.unpin(hold.Release)
		hold = nil
	}
}

// contendOrRemove reports false when nobody waits and there is a connection to
// give back first.
func (l *Locker) contendOrRemove(ln *line, hold *connhold.Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case len(ln.waiters) > 0:
		l.contendLocked(ln, hold)
	case hold != nil:
		return false
	default:
		delete(l.lines, ln.tag)
	}
	return true
}

// remove answers w, if there is one, and ends the line, unless somebody else
// waits by now: then it reports false.
func (l *Locker) remove(ln *line, w *waiter, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w != nil {
		ln.answerLocked(w, result{err: err})
	}
	if len(ln.waiters) > 0 {
		return false
	}
	delete(l.lines, ln.tag)
	return true
}

// shut refuses everybody, now and later, and returns the locks that are held.
func (l *Locker) shut() []*Lock {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	var locks []*Lock
	for _, ln := range l.lines {
		ln.refuseAllLocked(ErrClosed)
		ln.stopConnectingLocked()
		if ln.holder != nil {
			locks = append(locks, ln.holder)
		}
	}
	return locks
}
