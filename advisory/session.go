package advisory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// Session holds any number of locks on one connection. They are lost together
// when that dies, and each has its own Unlock. Calls that come at the same time
// share their round trips. It is safe for concurrent use.
//
// While [Lock.Tx] runs a transaction on one of its locks, all other calls wait for
// that. A Session does not wait for locks: a wait for one would hold up all others.
// Between the locks of one Session, and of one Locker, exclusion is the same as
// between processes.
//
// The server keeps all advisory locks of all sessions in one table of limited
// size (max_locks_per_transaction times max_connections, manual, section
// 20.12), which ordinary queries need too. A thousand locks are few there, ten
// thousand are many.
type Session struct {
	locker  *Locker
	conn    *heldConn
	batches *lockproto.Batches

	// mu guards the fields below. Nothing blocks under it. It is taken after
	// the Locker's mu, never before.
	mu       sync.Mutex
	queue    []*operation
	draining bool // a goroutine works off the queue
	locks    map[*sessionLock]struct{}
	refusing error // why no operation is taken any more
	over     error // the same, once the connection is given away, or is about to be
	forsaken bool  // over, and a transaction still has the connection locked, for whose end nobody waits
	ended    []End // of locks, not told of yet

	// Whoever has locked the connection uses the fields below.
	disposed bool // the connection is given away
	isShared bool // with functions of Lock.Tx, which may have locked on it
}

// Session pins a connection for many locks. It waits as [Locker.TryLock] does for
// one, and its errors are the same, but for ErrNotAcquired. The caller must
// close the Session; [Locker.Close] does so too.
func (l *Locker) Session(ctx context.Context) (*Session, error) {
	s, err := l.openSession(ctx)
	if err != nil {
		return nil, wrap("open", nil, err)
	}
	return s, nil
}

func (l *Locker) openSession(ctx context.Context) (*Session, error) {
	if ctx == nil {
		return nil, errNilContext
	}
	w := &waiter{request: request{session: true, Request: lockproto.Request{Name: "session"}}, ctx: ctx, result: make(chan result, 1)}
	r, err := l.await(l.callID(), w)
	return r.session, err
}

// newSession makes a Session of an attempt that holds nothing yet. The caller holds the
// Locker's mu.
func (l *Locker) newSession(a *attempt) *Session {
	s := &Session{locker: l, locks: make(map[*sessionLock]struct{}), batches: a.session.Batches()}
	s.conn = new(heldConn)
	s.conn.init(a, s)
	l.sessions[s] = struct{}{}
	s.conn.watch()
	return s
}

// TryLock takes a lock if it is free, as [Locker.TryLock] does. It is not
// re-entrant: the Session's own locks are held like any other's. On an error the
// Session's other locks stay as they are, unless that error ends the Session: an
// error that matches ErrLost then says so, to all of them.
func (s *Session) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return s.tryAll(ctx, "try lock", []Key{key}, false)
}

// TryRLock is TryLock in the shared mode.
func (s *Session) TryRLock(ctx context.Context, key Key) (*Lock, error) {
	return s.tryAll(ctx, "try shared lock", []Key{key}, true)
}

// TryLockAll takes all of the locks or none, as [Locker.TryLockAll] does. If one
// of them is not free, giving back the others costs a second round trip.
func (s *Session) TryLockAll(ctx context.Context, keys ...Key) (*Lock, error) {
	return s.tryAll(ctx, "try lock", slices.Clone(keys), false)
}

// BackendPID is the process id of the server backend whose session it is.
func (s *Session) BackendPID() uint32 { return s.conn.pid }

func (s *Session) tryAll(ctx context.Context, verb string, keys []Key, shared bool) (*Lock, error) {
	start := time.Now()
	a := Attempt{Keys: keys, Shared: shared, Try: true}
	telling := s.locker.attempting(ctx, a)
	lock, err := s.try(ctx, keys, shared)
	if err != nil {
		err = wrap(verb, keys, err)
	}
	a.Waited, a.Lock, a.Err = time.Since(start), lock, err
	s.locker.attempted(telling, a)
	return lock, err
}

func (s *Session) try(ctx context.Context, keys []Key, shared bool) (*Lock, error) {
	if err := validateAll(keys); err != nil {
		return nil, err
	}
	switch {
	case ctx == nil:
		return nil, errNilContext
	case ctx.Err() != nil:
		return nil, ended(ctx)
	}
	k := s.newLock(keys, shared)
	if err := s.locker.hold(k.Targets, k.holders); err != nil {
		return nil, err
	}
	if err := s.enqueue(&k.take); err != nil {
		s.locker.unhold(k.Targets, k.holders, nil)
		return nil, err
	}
	select {
	case <-k.answered:
	case <-ctx.Done():
		if s.abandon(&k.take) {
			return nil, ended(ctx)
		}
		<-k.answered
	}
	if k.take.err != nil {
		return nil, k.take.err
	}
	return &k.Lock, nil
}

// Close unlocks all locks of the Session, in two round trips, and gives its
// connection back. Their Done closes, Err says ErrClosed, and so does an Unlock
// that comes later. It waits for a round trip that is under way, and ends the
// session under a transaction of [Lock.Tx] that does not end; it works when ctx
// has ended and takes only its values. Later calls return nil.
func (s *Session) Close(ctx context.Context) error {
	ctx = orBackground(ctx)
	s.refuse(ErrClosed)
	if s.isForsaken() {
		return nil
	}
	limit := s.locker.config.UnlockTimeout + s.locker.config.HeartbeatTimeout // one round trip may be under way
	if !s.conn.lockWithin(limit) {
		s.kill(fmt.Errorf("%w: %w", ErrClosed, errTxRuns))
		return wrap("close", nil, errTxRuns)
	}
	defer s.unlockConn()
	if s.isOver() {
		return nil
	}
	if loss := s.conn.hold.Unwatch(s.locker.config.UnlockTimeout); loss != nil {
		s.end(loss)
		return wrap("close", nil, s.over)
	}
	return s.closeInOrder(ctx)
}

// closeInOrder unlocks and gives the connection away. The caller has locked the connection.
func (s *Session) closeInOrder(ctx context.Context) error {
	// Before the server is asked: nobody is to find a lock held here while
	// another has it.
	locks := s.endLocks()
	owned, err := s.unlockAll(ctx, locks)
	s.finish(ErrClosed)
	errs := []error{err}
	for i, k := range locks {
		lockErr := err
		if err == nil && !owned[i] {
			lockErr = &LostError{Keys: k.keys, Reason: LostNotHeld, Cause: ErrNotOwner}
			errs = append(errs, lockErr)
		}
		k.unhold(lockErr)
		k.result = errors.Join(wrap("unlock", k.keys, ErrClosed), lockErr)
		k.unsettled.Done()
	}
	if err := errors.Join(errs...); err != nil {
		return wrap("close", nil, err)
	}
	return nil
}

// endLocks ends all locks that nobody unlocks yet.
func (s *Session) endLocks() (locks []*Lock) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.locks {
		if k.claim() {
			k.end(ErrClosed)
			locks = append(locks, &k.Lock)
		}
	}
	return locks
}

// unlockAll unlocks, tells of each lock whether it was held, and puts the
// session's settings back.
func (s *Session) unlockAll(ctx context.Context, locks []*Lock) (owned []bool, err error) {
	var rows []lockproto.Row
	for _, k := range locks {
		rows = append(rows, lockproto.RowsFor(k.locks, true)...)
	}
	var results lockproto.Results
	if len(rows) > 0 {
		if results, err = s.batches.Run(rows); err != nil {
			return nil, err
		}
	}
	first := 0
	for _, k := range locks {
		owned = append(owned, results.AllOK(first, len(k.locks)))
		first += len(k.locks)
	}
	return owned, s.conn.session.Clear(ctx, s.locker.config.UnlockTimeout)
}
