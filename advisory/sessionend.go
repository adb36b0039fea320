package advisory

import (
	"context"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// kill ends the session under whoever has locked it and does not unlock it. If that is a
// transaction, the Session ends at once. If it is a round trip, that finds out.
func (s *Session) kill(why error) {
	if s.conn.breakOff(s.conn.running(), txRunsLoss) {
		s.forsake(why)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil { // else the connection may be somebody else's by now
		s.conn.hold.Kill()
	}
}

// breakOff tells of the end of the session under a transaction.
func (s *Session) breakOff(loss *connhold.Loss) { s.forsake(lostBy(nil, loss)) }

// forsake ends the Session though a transaction has the connection locked, which has been
// closed. That is counted out when the transaction's function has returned.
func (s *Session) forsake(why error) {
	s.mu.Lock()
	s.forsaken = true
	s.mu.Unlock()
	queue, locks, why := s.shut(why)
	s.tell(queue, locks, why)
	s.locker.onOwnGoroutine(s.tellEnded)
	s.locker.forsake(s.conn, s.dispose)
}

// lose runs on the watch's goroutine.
func (s *Session) lose(loss *connhold.Loss) {
	_ = s.conn.lock(context.Background())
	defer s.locker.onOwnGoroutine(s.unlockConn)
	if !s.isOver() { // else the round trip that met the loss has told
		s.end(loss)
	}
}

// unlockConn unlocks the connection, and then tells of the locks that have ended
// meanwhile.
func (s *Session) unlockConn() {
	s.conn.unlock()
	s.tellEnded()
}

// tellEnded tells of the locks that have ended with the Session. An Observer may wait
// for the connection.
func (s *Session) tellEnded() {
	s.mu.Lock()
	ended := s.ended
	s.ended = nil
	s.mu.Unlock()
	for _, e := range ended {
		defer s.locker.ended(e) // of each, also if one panics
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

func (s *Session) isForsaken() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.forsaken
}

// end ends the Session because its connection has died. The caller has locked the connection.
func (s *Session) end(loss *connhold.Loss) {
	if !s.disposed {
		s.conn.hold.MarkDirty()
	}
	s.finish(lostBy(nil, loss))
}

// finish ends all that is left of the Session: it gives the connection away, refuses
// what waits and tells each lock. The caller has locked the connection.
func (s *Session) finish(why error) {
	queue, locks, why := s.shut(why)
	s.dispose()
	s.tell(queue, locks, why)
}

// shut takes everything out of the Session. If it is over already it returns why, and
// what has come back since.
func (s *Session) shut(why error) ([]*operation, map[*sessionLock]struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over == nil {
		s.over, s.refusing = why, why
	}
	queue, locks := s.queue, s.locks
	s.queue, s.locks, s.draining = nil, nil, false
	return queue, locks, s.over
}

// dispose gives the connection away. The caller has locked the connection.
func (s *Session) dispose() {
	if s.disposed {
		return
	}
	s.disposed = true
	if s.conn.hold.IsClean() {
		s.locker.unreserve(s.conn.hold.Release)
	} else {
		s.locker.unreserve(s.conn.hold.Destroy)
	}
}

// tell gives the end to those who have waited for something else, and to the locks.
func (s *Session) tell(queue []*operation, locks map[*sessionLock]struct{}, why error) {
	l := s.locker
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
