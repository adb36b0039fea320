package advisory

import (
	"context"
	"fmt"
	"slices"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// line is the queue for one lock in this process: who holds it here, and who
// waits. It exists while there is any of these. Who comes first is served first;
// those who ask for the shared mode are served together when they follow each
// other.
//
// One goroutine, the contender, asks the server on behalf of all who wait, with
// one connection, whenever the first of them could be served next to those who
// hold. It ends when it can't go on, and whoever changes that starts another:
// [Locker.advanceLocked] is called after every change.
//
// Calls for several locks wait here for their turn only, one line after the
// other, and then ask the server themselves.
//
// All fields are guarded by the Locker's mu.
type line struct {
	tag     tag
	waiters []*waiter
	holders []*occupant

	contended bool // the contender runs
	// What it does: waits for a connection, has one, or has been told by the
	// server, and still has been at last, that another session holds the lock.
	phase phase
	// stopConnecting ends the wait for a connection once nobody needs it; nil
	// when there is no such wait.
	stopConnecting context.CancelFunc
	// pending says, while the lock is granted and what its grant must do besides
	// waits for a transaction, for which.
	pending error
}

type phase uint8

const (
	idle phase = iota
	connecting
	asking
	denied
)

// occupant is who holds a lock here, or is about to: one that has had its turn
// and asks the server now.
type occupant struct {
	shared bool
	lock   *Lock // nil until the server has granted it
}

// waiter is one call's place in a line.
type waiter struct {
	ctx context.Context // asked only whether it has ended
	request
	shared bool
	try    bool // does not wait for other sessions
	lead   bool // for a term of Lead
	turn   bool // wants its turn in this line and nothing of the server
	asked  bool // the server has been asked on behalf of it; the contender's
	result chan result
}

// result answers a waiter; the channel takes one without blocking.
type result struct {
	lock     *Lock
	occupant *occupant // for turn
	err      error
}

func (ln *line) fits(shared bool) bool {
	return len(ln.holders) == 0 || shared && ln.holders[0].shared
}

// isOpenTo reports whether a call that does not wait may join.
func (ln *line) isOpenTo(shared bool) bool {
	if !ln.fits(shared) || ln.phase == denied && len(ln.waiters) > 0 {
		return false
	}
	for _, w := range ln.waiters {
		if !shared || !w.shared {
			return false
		}
	}
	return true
}

// join puts w in the line for t. It reports whether w's own goroutine is to ask
// the server, as the contender, which is so where nobody else is.
func (l *Locker) join(t tag, w *waiter) (ln *line, asks bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false, ErrClosed
	}
	ln, ok := l.lines[t]
	if !ok {
		ln = &line{tag: t, waiters: []*waiter{w}}
		l.lines[t] = ln
		if !w.turn {
			ln.contended, ln.phase = true, connecting
			l.work.Add(1)
			return ln, true, nil
		}
	} else {
		if w.try && !ln.isOpenTo(w.shared) {
			return nil, false, errBusyHere
		}
		ln.waiters = append(ln.waiters, w)
	}
	l.advanceLocked(ln, nil)
	return ln, false, nil
}

var errBusyHere = fmt.Errorf("%w: this Locker holds it, or another call of it asks for it", ErrNotAcquired)

// occupy gives occupants the place of a holder in all lines at once, or in none if
// one of them is not free, for locks whose grant the caller then asks for itself.
func (l *Locker) occupy(targets []target, occupants []*occupant) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	for _, t := range targets {
		if ln, ok := l.lines[t.tag]; ok && (len(ln.waiters) > 0 || !ln.fits(t.shared)) {
			return errBusyHere
		}
	}
	for i, t := range targets {
		ln, ok := l.lines[t.tag]
		if !ok {
			ln = &line{tag: t.tag}
			l.lines[t.tag] = ln
		}
		ln.holders = append(ln.holders, occupants[i])
	}
	return nil
}

// vacate ends what occupants hold, and goes on in their lines: on hold, if there
// is one and somebody there can use it. It reports whether hold was used.
func (l *Locker) vacate(targets []target, occupants []*occupant, hold *connhold.Hold) (used bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.vacateLocked(targets, occupants, hold)
}

// vacateLocked is vacate for a caller that holds mu.
func (l *Locker) vacateLocked(targets []target, occupants []*occupant, hold *connhold.Hold) (used bool) {
	for i, o := range occupants {
		ln := l.lines[targets[i].tag]
		ln.holders = slices.DeleteFunc(ln.holders, func(other *occupant) bool { return other == o })
		if l.advanceLocked(ln, hold) {
			used, hold = true, nil
		}
	}
	l.changedLocked()
	return used
}

// advanceLocked serves what needs no server, starts the contender if the first
// in the line could be served, on hold if there is one, and removes an empty
// line. It reports whether hold was used. The caller holds mu.
func (l *Locker) advanceLocked(ln *line, hold *connhold.Hold) (used bool) {
	if ln.contended {
		l.changedLocked()
		return false
	}
	for w := l.headLocked(ln); w != nil && ln.fits(w.shared); w = l.headLocked(ln) {
		if !w.turn {
			ln.contended, ln.phase = true, connecting
			if hold != nil {
				ln.phase = asking
			}
			l.contend(ln, hold)
			return hold != nil
		}
		o := &occupant{shared: w.shared}
		ln.holders = append(ln.holders, o)
		ln.answerLocked(w, result{occupant: o})
	}
	if len(ln.waiters) == 0 && len(ln.holders) == 0 {
		delete(l.lines, ln.tag)
	}
	return false
}

// leave takes w out of the line because its ctx has ended, and returns the
// error that says so; nil if w has been answered already.
func (l *Locker) leave(ln *line, w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(ln.waiters, w) {
		return nil
	}
	err := l.endedWaitingLocked(ln, w)
	ln.waiters = slices.DeleteFunc(ln.waiters, func(other *waiter) bool { return other == w })
	if len(ln.waiters) == 0 && ln.stopConnecting != nil {
		ln.stopConnecting()
	}
	l.advanceLocked(ln, nil)
	return err
}

// headLocked returns the first who still waits, or nil. It takes those out of
// the line whose ctx has ended and who are about to leave: a lock is not
// delivered to them.
func (l *Locker) headLocked(ln *line) *waiter {
	for len(ln.waiters) > 0 {
		w := ln.waiters[0]
		if w.ctx.Err() == nil {
			return w
		}
		ln.answerLocked(w, result{err: l.endedWaitingLocked(ln, w)})
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

func (ln *line) refuseAllLocked(err error) {
	for len(ln.waiters) > 0 {
		ln.answerLocked(ln.waiters[0], result{err: err})
	}
}

// endedWaitingLocked is the error of a call whose ctx ended while it waited.
func (l *Locker) endedWaitingLocked(ln *line, w *waiter) error {
	switch {
	case !ln.fits(w.shared):
		return fmt.Errorf("waiting for the lock, which this process holds: %w", ended(w.ctx))
	case ln.phase == connecting:
		return l.endedConnecting(w.ctx)
	case ln.pending != nil:
		return fmt.Errorf("%w: %w", ln.pending, ended(w.ctx))
	default:
		return fmt.Errorf("waiting for the lock: %w", ended(w.ctx))
	}
}
