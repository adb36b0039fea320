package advisory

import (
	"context"
	"errors"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// unlock is Lock.Unlock's part for a lock of the Session.
func (s *Session) unlock(k *Lock) error {
	op := &operation{lock: k, unlocks: true, done: make(chan struct{})}
	err := s.enqueue(op)
	if err != nil {
		s.locker.vacate(k.targets, k.occupants, nil)
	} else {
		limit := s.locker.config.UnlockTimeout + s.locker.config.HeartbeatTimeout // one round trip may be under way
		s.locker.alarms.Set(&op.alarm, time.Now().Add(limit), func() { s.expire(op) })
		<-op.done
		s.locker.alarms.Off(&op.alarm)
		err = op.err
	}
	if lost, ok := errors.AsType[*LostError](err); ok {
		return &LostError{Keys: k.keys, Reason: lost.Reason, Cause: lost.Cause}
	}
	if errors.Is(err, ErrClosed) {
		return wrap("unlock", k.keys, ErrClosed)
	}
	return err
}

// expire ends the wait of an unlock for a transaction that does not end.
func (s *Session) expire(op *operation) {
	if !s.abandon(op) {
		return
	}
	s.kill()
	s.locker.vacate(op.lock.targets, op.lock.occupants, nil)
	op.err = wrap("unlock", op.lock.keys, errTxRuns)
	close(op.done)
}

// kill ends the session under a transaction that does not end; whoever runs it
// finds out.
func (s *Session) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil { // else the connection may be somebody else's by now
		s.seat.hold.Kill()
	}
}

// lose runs on the watch's goroutine.
func (s *Session) lose(loss *connhold.Loss) {
	_ = s.seat.take(context.Background())
	defer s.seat.pass()
	if !s.isOver() { // else the round trip that met the loss has told
		s.end(loss)
	}
}

// refuse takes no operation any more.
func (s *Session) refuse(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusing == nil {
		s.refusing = why
	}
}

func (s *Session) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.over != nil
}

// end ends the Session because its connection has died. The caller has the turn.
func (s *Session) end(loss *connhold.Loss) {
	s.seat.hold.Taint()
	s.finish(lostBy(nil, loss))
}

// finish ends all that is left of the Session: it refuses what waits, tells each
// lock, and gives the connection away. The caller has the turn.
func (s *Session) finish(why error) {
	s.mu.Lock()
	s.over, s.refusing = why, why
	queue, locks := s.queue, s.locks
	s.queue, s.locks, s.draining = nil, nil, false
	s.mu.Unlock()

	l := s.locker
	if s.seat.hold.IsClean() {
		l.unpin(s.seat.hold.Release)
	} else {
		l.unpin(s.seat.hold.Destroy)
	}
	s.answerAll(queue, why)
	for k := range locks {
		k.endWith(why)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.sessions, s)
}

// answerQueue answers what has been put back after the Session's end.
func (s *Session) answerQueue(why error) {
	s.mu.Lock()
	queue := s.queue
	s.queue = nil
	s.mu.Unlock()
	s.answerAll(queue, why)
}

func (s *Session) answerAll(queue []*operation, why error) {
	for _, op := range queue {
		op.err = why
	}
	s.decide(queue)
	s.conclude(queue)
}
