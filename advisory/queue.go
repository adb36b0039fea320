package advisory

import (
	"context"
	"fmt"
	"slices"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// queue is who holds one lock in this process, and who waits for it. It exists while
// there is any of these. Waiters are served first come, first served; those that want the
// shared mode are served together when they follow each other.
//
// One goroutine, the acquirer, asks the server on behalf of all waiters, with one
// connection, whenever the first of them is compatible with the holders. It ends when it
// can't go on, and whoever changes that starts another: [Locker.advanceLocked] is called
// after every change.
//
// A call for several locks waits for its turn in the queue of each lock. Then it, and a
// call for a [Session], is the only waiter in a queue of its own.
//
// All fields are guarded by the Locker's mu.
type queue struct {
	id      lockid.ID
	waiters []*waiter
	holders []*holder
	call    *waiter // for whose call alone the queue is; nil for the queue of a lock

	phase phase // what the acquirer does
	// cancelConnect ends the wait for a connection once nobody needs it; nil while there
	// is no such wait.
	cancelConnect context.CancelFunc
	// changed wakes an acquirer that pauses; nil while none does.
	changed chan struct{}
	// blocked says which transaction the receipt waits for, while the lock is granted and
	// its receipt is not made.
	blocked error
}

// phase is what the acquirer of a queue does.
type phase uint8

const (
	idle       phase = iota // there is no acquirer
	connecting              // it waits for a connection
	asking                  // it has a connection
	denied                  // the server has told it last that another session holds the lock
)

// isCompatible reports whether the holders allow one more.
func (q *queue) isCompatible(shared bool) bool {
	return len(q.holders) == 0 || shared && q.holders[0].shared
}

// isOpenTo reports whether a call that does not wait may join.
func (q *queue) isOpenTo(shared bool) bool {
	if !q.isCompatible(shared) || q.phase == denied && len(q.waiters) > 0 {
		return false
	}
	for _, w := range q.waiters {
		if !shared || !w.shared {
			return false
		}
	}
	return true
}

// join puts w in the queue of a lock. It reports whether w's own goroutine is to ask the
// server, as the acquirer: that is so where there is no other one.
func (l *Locker) join(id lockid.ID, w *waiter) (q *queue, acquires bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, false, ErrClosed
	}
	q, ok := l.queues[id]
	switch {
	case !ok:
		q = &w.scratch.queue
		w.scratch.waiters[0] = w
		q.id, q.waiters, q.holders = id, w.scratch.waiters[:], w.scratch.holders[:0]
		l.queues[id] = q
		if id.Space == lockid.Calls {
			q.call = w
		}
		if !w.turn {
			q.phase = connecting
			l.work.Add(1)
			return q, true, nil
		}
	case w.try && !q.isOpenTo(w.shared):
		return nil, false, errBusyHere
	default:
		q.waiters = append(q.waiters, w)
	}
	l.advanceLocked(q, nil)
	return q, false, nil
}

var errBusyHere = fmt.Errorf("%w: this Locker holds it, or another call of it asks for it", ErrNotAcquired)

// callID returns the ID of a queue for one call alone.
func (l *Locker) callID() lockid.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.callCount++
	return lockid.ID{Space: lockid.Calls, Number: l.callCount}
}

// hold adds holders to the queues of all targets at once, or to none if one of them is
// not free, for a call that then asks the server itself.
func (l *Locker) hold(targets []lockid.Target, holders []*holder) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return ErrClosed
	}
	for _, t := range targets {
		if q, ok := l.queues[t.ID]; ok && (len(q.waiters) > 0 || !q.isCompatible(t.Shared)) {
			return errBusyHere
		}
	}
	for i, t := range targets {
		q, ok := l.queues[t.ID]
		if !ok {
			q = &queue{id: t.ID}
			l.queues[t.ID] = q
		}
		q.holders = append(q.holders, holders[i])
	}
	return nil
}

// unhold removes holders from the queues of targets, and advances these: on conn, if there
// is one and a waiter there can use it. It reports whether conn was used.
func (l *Locker) unhold(targets []lockid.Target, holders []*holder, conn *connhold.Hold) (used bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unholdLocked(targets, holders, conn)
}

// unholdLocked is unhold for a caller that holds mu.
func (l *Locker) unholdLocked(targets []lockid.Target, holders []*holder, conn *connhold.Hold) (used bool) {
	for i, h := range holders {
		q := l.queues[targets[i].ID]
		q.holders = slices.DeleteFunc(q.holders, func(other *holder) bool { return other == h })
		if l.advanceLocked(q, conn) {
			used, conn = true, nil
		}
	}
	l.capacityChangedLocked()
	return used
}

// unholdCallLocked removes the holders of a call that has not got its locks.
func (l *Locker) unholdCallLocked(w *waiter) {
	if len(w.holders) > 0 {
		l.unholdLocked(w.Targets[:len(w.holders)], w.holders, nil)
		w.holders = nil
	}
}

func (l *Locker) unholdCall(w *waiter) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.unholdCallLocked(w)
}

// advanceLocked serves what needs no server, starts an acquirer if the first waiter is
// compatible with the holders, on conn if there is one, and removes an empty queue. It
// reports whether conn was used. The caller holds mu.
func (l *Locker) advanceLocked(q *queue, conn *connhold.Hold) (used bool) {
	if q.phase != idle {
		q.changedLocked()
		l.capacityChangedLocked()
		return false
	}
	for w := l.headLocked(q); w != nil && q.isCompatible(w.shared); w = l.headLocked(q) {
		if !w.turn {
			q.phase = connecting
			if conn != nil {
				q.phase = asking
			}
			l.startAcquirer(q, conn)
			return conn != nil
		}
		h := &holder{shared: w.shared}
		q.holders = append(q.holders, h)
		q.answerLocked(w, result{holder: h})
	}
	if len(q.waiters) == 0 && len(q.holders) == 0 {
		delete(l.queues, q.id)
	}
	return false
}

// leave takes w out of the queue because its ctx has ended, and returns the error that
// says so; nil if w has been answered already.
func (l *Locker) leave(q *queue, w *waiter) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !slices.Contains(q.waiters, w) {
		return nil
	}
	err := l.endedWaitingLocked(q, w)
	q.waiters = slices.DeleteFunc(q.waiters, func(other *waiter) bool { return other == w })
	if len(q.waiters) == 0 && q.cancelConnect != nil {
		q.cancelConnect()
	}
	l.advanceLocked(q, nil)
	return err
}

// headLocked returns the first waiter, or nil. It drops waiters whose ctx has ended and
// that are about to leave: no lock is delivered to them.
func (l *Locker) headLocked(q *queue) *waiter {
	for len(q.waiters) > 0 {
		w := q.waiters[0]
		if w.ctx.Err() == nil {
			return w
		}
		q.answerLocked(w, result{err: l.endedWaitingLocked(q, w)})
	}
	return nil
}

// answerLocked takes w out of the queue with its result, unless w has left.
func (q *queue) answerLocked(w *waiter, r result) {
	if i := slices.Index(q.waiters, w); i >= 0 {
		q.waiters = slices.Delete(q.waiters, i, i+1)
		w.result <- r
	}
}

// changedLocked wakes the acquirer if it pauses.
func (q *queue) changedLocked() {
	if q.changed != nil {
		close(q.changed)
		q.changed = nil
	}
}

func (q *queue) refuseAllLocked(err error) {
	q.changedLocked()
	for len(q.waiters) > 0 {
		q.answerLocked(q.waiters[0], result{err: err})
	}
}

// endedWaitingLocked is the error of a call whose ctx ended while it waited.
func (l *Locker) endedWaitingLocked(q *queue, w *waiter) error {
	switch {
	case !q.isCompatible(w.shared):
		return fmt.Errorf("waiting for the lock, which this process holds: %w", ended(w.ctx))
	case q.phase == connecting:
		return l.endedConnecting(w.ctx)
	case q.blocked != nil:
		return fmt.Errorf("%w: %w", q.blocked, ended(w.ctx))
	case q.call != nil:
		return fmt.Errorf("waiting for the locks: %w", ended(w.ctx))
	default:
		return fmt.Errorf("waiting for the lock: %w", ended(w.ctx))
	}
}
