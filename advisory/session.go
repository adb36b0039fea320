package advisory

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// Session holds any number of locks on one connection. They are lost together
// when that dies, and each has its own Unlock. Calls that come at the same time
// share their round trips. It is safe for concurrent use.
//
// A Session does not wait for locks: a wait for one would hold up all others.
// Between the locks of one Session, and of one Locker, exclusion is the same as
// between processes.
//
// The server keeps all advisory locks of all sessions in one table of limited
// size (max_locks_per_transaction times max_connections, manual, section
// 20.12), which ordinary queries need too. A thousand locks are few there, ten
// thousand are many.
type Session struct {
	locker *Locker
	seat   *seat

	// mu guards the fields below. Nothing blocks under it. It is taken after
	// the Locker's mu, never before.
	mu       sync.Mutex
	queue    []*operation
	draining bool // a goroutine works off the queue
	locks    map[*Lock]struct{}
	over     error // why there are no more operations, once there are none
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
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	s := &Session{locker: l, locks: make(map[*Lock]struct{})}
	opened := make(chan error, 1)
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	c := &call{stop: stop}
	if !l.start(c, func() { opened <- l.connectSession(ctx, c, s) }) {
		return nil, ErrClosed
	}
	select {
	case err := <-opened:
		return s, err
	case <-ctx.Done():
	}
	if l.abandon(c) {
		return nil, l.endedSession(ctx)
	}
	return s, <-opened
}

func (l *Locker) endedSession(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), ErrClosed) {
		return ErrClosed
	}
	return l.endedConnecting(ctx)
}

// connectSession makes s of a connection, or gives that back if the caller has
// left.
func (l *Locker) connectSession(ctx context.Context, c *call, s *Session) error {
	contest := &contest{}
	var err error
	for contest.hold == nil && err == nil {
		err = contest.connect(ctx, l)
	}
	if err == nil {
		name := sessionName(contest.hold.ParameterStatus("application_name"))
		if err = contest.prepareSession(ctx, l, name); err != nil {
			contest.fail(l, err)
		}
	}
	l.mu.Lock()
	if err == nil && !c.abandoned && !l.closed {
		defer l.mu.Unlock()
		delete(l.calls, c)
		s.seat = l.newSeat(contest, s.lose)
		l.sessions[s] = struct{}{}
		s.seat.watch()
		return nil
	}
	l.mu.Unlock()
	contest.granted = err == nil // the settings are applied
	contest.giveBack(l)
	l.end(c)
	if err == nil {
		err = ErrClosed // or nobody is there to hear it
	}
	return err
}

func sessionName(application string) string {
	name := "lock session"
	if application != "" {
		name += " of " + application
	}
	return name[:min(len(name), nameLimit)]
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
	return s.tryAll(ctx, "try lock", keys, false)
}

// BackendPID is the process id of the server backend whose session it is.
func (s *Session) BackendPID() uint32 { return s.seat.pid }

func (s *Session) tryAll(ctx context.Context, verb string, keys []Key, shared bool) (*Lock, error) {
	start := time.Now()
	keys = slices.Clone(keys)
	lock, err := s.try(ctx, keys, shared)
	if err != nil {
		err = wrap(verb, keys, err)
	}
	s.locker.attempted(ctx, Attempt{Keys: keys, Shared: shared, Try: true, Waited: time.Since(start), Lock: lock, Err: err})
	return lock, err
}

func (s *Session) try(ctx context.Context, keys []Key, shared bool) (*Lock, error) {
	if err := validateAll(keys); err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, ended(ctx)
	}
	targets := targetsOf(keys)
	for i := range targets {
		targets[i].shared = shared
	}
	occupants, err := s.locker.occupy(targets)
	if err != nil {
		return nil, err
	}
	op := &operation{request: request{keys: keys, targets: targets}, occupants: occupants, done: make(chan struct{})}
	if err := s.enqueue(op); err != nil {
		s.locker.vacate(targets, occupants, nil)
		return nil, err
	}
	select {
	case <-op.done:
	case <-ctx.Done():
		if s.abandon(op) {
			return nil, ended(ctx)
		}
		<-op.done
	}
	return op.lock, op.err
}

// Close unlocks all locks of the Session, in one round trip, and gives its
// connection back. Their Done closes, Err says ErrClosed, and so does an Unlock
// that comes later. It waits for a round trip that is under way, and ends the
// session under a transaction of [Lock.Tx] that does not end; it works when ctx
// has ended and takes only its values. Later calls return nil.
func (s *Session) Close(ctx context.Context) error {
	limit := s.locker.config.UnlockTimeout + s.locker.config.HeartbeatTimeout // one round trip may be under way
	if !s.seat.takeWithin(limit) {
		s.kill()
		return wrap("close", nil, errTxRuns)
	}
	defer s.seat.pass()
	if s.isOver() {
		return nil
	}
	if loss := s.seat.hold.Unwatch(s.locker.config.UnlockTimeout); loss != nil {
		s.end(loss)
		return wrap("close", nil, s.over)
	}
	err := s.seat.hold.Run(ctx, s.locker.config.UnlockTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, clearSQL(s.seat.session))
		return err
	})
	s.finish(ErrClosed)
	if err != nil {
		return wrap("close", nil, err)
	}
	return nil
}
