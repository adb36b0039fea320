package advisory

import (
	"errors"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// sessionLock is a Lock of a Session, and the operations that take and free it.
type sessionLock struct {
	Lock
	session    *Session
	take, free operation
	answered   chan struct{} // takes one answer of either without blocking

	// What a lock of one key refers to. It comes in one piece with the lock.
	key    [1]Key
	target [1]lockid.Target
	place  [1]*holder
	holder holder
}

// newLock makes a lock that is not taken yet, on the server or in this process.
func (s *Session) newLock(keys []Key, shared bool) *sessionLock {
	k := &sessionLock{session: s, answered: make(chan struct{}, 1)}
	if len(keys) == 1 {
		k.key[0], k.target[0] = keys[0], lockid.Target{ID: keys[0].lockID(), Shared: shared}
		k.holder.shared = shared
		k.place[0] = &k.holder
		k.keys, k.Targets, k.holders = k.key[:], k.target[:], k.place[:]
	} else {
		k.keys, k.Targets = keys, targetsOf(keys, shared)
		k.holders = holdersFor(k.Targets)
	}
	k.locker, k.conn, k.locks, k.in = s.locker, s.conn, k.Targets, k
	k.unsettled.Add(1)
	k.take.lock, k.free.lock, k.free.unlocks = k, k, true
	return k
}

// unlock is Lock.Unlock's part.
func (k *sessionLock) unlock() error {
	err := k.session.enqueue(&k.free)
	if err != nil {
		k.locker.unhold(k.Targets, k.holders, nil)
	} else {
		<-k.answered
		err = k.free.err
	}
	if lost, ok := errors.AsType[*LostError](err); ok {
		return &LostError{Keys: k.keys, Reason: lost.Reason, Cause: lost.Cause}
	}
	if errors.Is(err, ErrClosed) {
		return wrap("unlock", k.keys, ErrClosed)
	}
	return err
}

// lockConn locks the connection. An unlock that has waited for too long, which a
// transaction of [Lock.Tx] can make it, ends the session.
func (s *Session) lockConn() {
	limit := s.locker.config.UnlockTimeout + s.locker.config.HeartbeatTimeout // one round trip may be under way
	for wait := limit; !s.conn.lockWithin(wait); {
		var overdue []*sessionLock
		overdue, wait = s.expire(limit)
		for _, k := range overdue {
			s.kill(lostBy(nil, txRunsLoss))
			k.locker.unhold(k.Targets, k.holders, nil)
			k.free.err = wrap("unlock", k.keys, errTxRuns)
			k.answered <- struct{}{}
		}
	}
}

// expire takes the unlocks out of the queue that have waited longer than limit, and
// returns how long the next of them has.
func (s *Session) expire(limit time.Duration) (overdue []*sessionLock, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = limit
	s.queue = slices.DeleteFunc(s.queue, func(op *operation) bool {
		if !op.unlocks {
			return false
		}
		if left := limit - time.Since(op.lock.granted.Add(op.lock.held)); left > 0 {
			next = min(next, left)
			return false
		}
		overdue = append(overdue, op.lock)
		return true
	})
	return overdue, next
}
