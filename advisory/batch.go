package advisory

import (
	"fmt"
	"runtime"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// operation is one call's part of a Session's round trip: to try its locks, or
// to unlock them.
type operation struct {
	lock      *sessionLock
	unlocks   bool
	abandoned bool  // the caller of a try has left; guarded by the Session's mu
	decided   bool  // its result is about to be given; guarded likewise
	err       error // the result, written before the lock is answered
}

// enqueue adds an operation to the next round trip.
func (s *Session) enqueue(op *operation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusing != nil {
		return s.refusing
	}
	s.queue = append(s.queue, op)
	if !s.draining {
		s.draining = true
		go s.drain() // ends with the queue; Close waits for it by locking the connection
	}
	return nil
}

// abandon reports whether the caller of op leaves before it was decided.
func (s *Session) abandon(op *operation) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	op.abandoned = !op.decided
	return op.abandoned
}

// drain works off the queue: what has come during one round trip goes into the
// next.
func (s *Session) drain() {
	s.lockConn()
	defer s.locker.onOwnGoroutine(s.unlockConn)
	if !s.begin() {
		return
	}
	for s.giveWay() {
		batch := s.next()
		if batch == nil {
			s.conn.watch()
			return
		}
		if loss := s.run(batch); loss != nil {
			s.requeue(batch)
			s.end(loss)
			return
		}
		s.gather(len(batch))
	}
}

// begin takes the session from its watch, and reports false if that was the end
// of the Session. The caller has locked the connection.
func (s *Session) begin() bool {
	if s.isOver() {
		return false
	}
	if loss := s.conn.hold.Unwatch(s.locker.config.HeartbeatTimeout); loss != nil {
		s.end(loss)
		return false
	}
	return true
}

// gather lets those run who have been answered: what they ask next goes into one
// round trip if it comes now. It waits for as many as there were, and no longer
// than they keep coming.
func (s *Session) gather(answered int) {
	expected, seen, since := s.queued()+answered, -1, time.Time{}
	for {
		runtime.Gosched()
		queued := s.queued()
		if queued >= expected {
			return
		}
		now := time.Now()
		if queued != seen {
			seen, since = queued, now
		} else if now.Sub(since) > gatherLimit {
			return
		}
	}
}

// gatherLimit is for a caller to come back, of which many do in less; it is a small part of
// the shortest round trip.
const gatherLimit = 10 * time.Microsecond

func (s *Session) queued() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// giveWay lets somebody else have the turn who waits for it, and reports false if
// that was the end of the Session.
func (s *Session) giveWay() bool {
	if !s.conn.isWanted() {
		return true
	}
	s.conn.watch()
	s.conn.unlock()
	s.lockConn()
	return s.begin()
}

// requeue puts operations back, for the end of the Session to answer them.
func (s *Session) requeue(batch []*operation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queue = append(batch, s.queue...)
}

// next returns the operations of one round trip, and nil when there are none and
// draining has ended.
func (s *Session) next() []*operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.queue
	s.queue = nil
	s.draining = batch != nil
	return batch
}

// run does the operations of one round trip, and returns the session's loss if it could
// not.
func (s *Session) run(batch []*operation) *connhold.Loss {
	rows := rowsOf(batch)
	results, err := s.batches.Run(rows)
	if err != nil {
		return s.recover(batch, rows, results, err)
	}
	s.decide(batch)
	var undo []lockproto.Row
	first := 0
	for _, op := range batch {
		n := len(op.lock.locks)
		undo = append(undo, s.judge(op, rows[first:first+n], results[first:first+n])...)
		first += n
	}
	if len(undo) > 0 {
		if err := s.batches.Undo(undo); err != nil {
			return asLoss(err)
		}
	}
	if s.isShared {
		if err := s.freeRest(batch); err != nil {
			return asLoss(err)
		}
	}
	s.conclude(batch)
	return nil
}

func rowsOf(batch []*operation) []lockproto.Row {
	rows := make([]lockproto.Row, 0, len(batch)) // more, if some have several
	for _, op := range batch {
		for _, t := range op.lock.locks {
			rows = append(rows, lockproto.Row{Target: t, Release: op.unlocks})
		}
	}
	return rows
}

// decide has the results be given to the callers who have not left until now.
func (s *Session) decide(batch []*operation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, op := range batch {
		op.decided = !op.abandoned
	}
}

// judge notes the result of an operation, and returns what has to be unlocked
// again: the part of several locks that was granted, or the locks of a caller
// who has left.
func (s *Session) judge(op *operation, rows []lockproto.Row, results lockproto.Results) (undo []lockproto.Row) {
	all := results.AllOK(0, len(rows))
	switch {
	case op.unlocks && !all:
		s.conn.hold.MarkDirty()
		op.err = &LostError{Keys: op.lock.keys, Reason: LostNotHeld, Cause: ErrNotOwner}
		return nil
	case op.unlocks || all && op.decided:
		return nil
	case !all:
		op.err = errOneHeldElsewhere
	}
	for i, r := range rows {
		if results.OK(i) {
			r.Release = true
			undo = append(undo, r)
		}
	}
	return undo
}

var errOneHeldElsewhere = fmt.Errorf("%w: another session holds the lock, or one of them", ErrNotAcquired)

// conclude gives the results: the Session has the locks that were granted, and
// those that were not, or are unlocked, give up their keys.
func (s *Session) conclude(batch []*operation) {
	now := time.Now()
	s.mu.Lock()
	for _, op := range batch {
		switch {
		case op.unlocks:
			delete(s.locks, op.lock)
		case op.isGranted():
			op.lock.granted = now
			s.locks[op.lock] = struct{}{}
		}
	}
	s.mu.Unlock()

	l := s.locker
	l.mu.Lock()
	for _, op := range batch {
		k := op.lock
		switch {
		case op.isGranted():
			for _, h := range k.holders {
				h.lock = &k.Lock
			}
		default:
			l.unholdLocked(k.Targets, k.holders, nil)
		}
	}
	l.mu.Unlock()

	for _, op := range batch {
		if op.decided {
			op.lock.answered <- struct{}{}
		}
	}
}

// isGranted reports whether the operation has taken its locks for its caller.
func (op *operation) isGranted() bool { return !op.unlocks && op.decided && op.err == nil }
