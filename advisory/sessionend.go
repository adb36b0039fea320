package advisory

import (
	"context"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

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

func (s *Session) answerAll(queue []*operation, why error) {
	for _, op := range queue {
		op.err = why
	}
	s.decide(queue)
	s.conclude(queue)
}
