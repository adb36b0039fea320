package advisory

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// Lock is a lock that is held, on a connection of its own. It is for one use:
// once it has ended it stays ended. All methods are safe for concurrent use,
// and for calls on a nil Lock.
//
// A Lock can end at any time and for many reasons: a backend terminated by an
// administrator, a server that restarts or fails over, a network that breaks.
// The server frees the lock at once then, and this process learns of it a
// moment later: milliseconds when the server or the network says so, at most
// [Config.Heartbeat] + [Config.HeartbeatTimeout] when all goes silent, and any
// time at all when the process itself is stopped. In between two holders
// believe that they hold. What must not be written twice needs package
// fencing.
type Lock struct {
	locker *Locker
	request
	locks     []target    // on the server
	occupants []*occupant // its places in the lines, by target
	seat      *seat
	in        *Session // whose the seat is, if it is not the lock's own
	receipt   int64
	granted   time.Time

	// ctx ends with the hold; its cause is what Err returns.
	ctx context.Context
	end context.CancelCauseFunc

	// The first of Unlock and the watch to claim the lock disposes of its
	// connection, sets result and closes settled.
	claimed atomic.Bool
	held    time.Duration
	settled chan struct{}
	result  error
}

// newLock makes a Lock of what a contest has won. It is called under the
// Locker's mu, so that nobody can unlock what is not watched yet.
func (l *Locker) newLock(r request, occupants []*occupant, c *contest) *Lock {
	k := &Lock{
		locker: l, request: r, locks: r.targets, occupants: occupants,
		granted: time.Now(), settled: make(chan struct{}),
	}
	if !r.issue.IsZero() {
		k.receipt = c.receipt
	}
	if s := r.slots; s != nil {
		slot := s.slot(c.slot)
		k.keys = []Key{slot}
		k.locks = []target{{tag: slot.tag()}, {tag: tag{id: s.announcement()}, shared: true}}
	}
	k.ctx, k.end = context.WithCancelCause(context.Background())
	for _, o := range occupants {
		o.lock = k
	}
	k.seat = l.newSeat(c, k.lose)
	k.seat.watch()
	return k
}

// Keys returns the keys that are locked, as they were given.
func (k *Lock) Keys() []Key {
	if k == nil {
		return nil
	}
	return slices.Clone(k.keys)
}

// BackendPID is the process id of the server backend whose session holds the
// lock, as in pg_locks and pg_stat_activity; 0 for a Lock that is nil or was not made by
// a Locker.
func (k *Lock) BackendPID() uint32 {
	if !k.made() {
		return 0
	}
	return k.seat.pid
}

// Receipt is for package fencing: what the function that it had called at the
// grant returned. It is 0 for other locks.
func (k *Lock) Receipt() int64 {
	if k == nil {
		return 0
	}
	return k.receipt
}

// Done returns a channel that is closed once the lock is not held any more:
// when Unlock or [Locker.Close] begins, or when the loss of the session is
// noticed. That it is open does not prove that the lock is held; see [Lock].
func (k *Lock) Done() <-chan struct{} {
	if !k.made() {
		return closedChan
	}
	return k.ctx.Done()
}

// Err returns nil while the lock is held for all that is known, and then what
// ended it first: [ErrUnlocked] for Unlock, whatever that found out and
// returned, [ErrClosed] for [Locker.Close], and a [LostError] for a loss that
// was noticed. It does not ask the server.
func (k *Lock) Err() error {
	if !k.made() {
		return ErrNotOwner
	}
	return context.Cause(k.ctx)
}

// Context returns a context that ends with parent, with the lock, or when
// cancel is called. [context.Cause] tells why: it is what Err returns if the
// lock ended first. The caller must call cancel to free its resources.
func (k *Lock) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	if !k.made() {
		cancel(ErrNotOwner)
		return ctx, func() {}
	}
	if err := k.Err(); err != nil {
		cancel(err)
		return ctx, func() {}
	}
	stop := context.AfterFunc(k.ctx, func() { cancel(k.Err()) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// Unlock ends the hold and frees the lock. Done is closed before the server is
// asked, so that nobody finds the lock held here while another has it.
//
// It returns nil only if the server said that its session had held the lock
// until now. Else the connection is closed, which frees the lock too, and the
// error says why: a [LostError], which matches [ErrLost], when exclusivity was
// not certain until now, because the session died, did not answer or (matching
// [ErrNotOwner]) did not hold the lock; another error when the server refused
// the unlock on a session that lived. When the server can't be reached it keeps
// the lock until it notices that by itself.
//
// Unlock works when ctx has ended; it takes only its values, and
// [Config.UnlockTimeout], and a second to close the connection, bound it. Later
// calls, and calls at the same time from other goroutines, wait for the first
// and return what it returned. After [Locker.Close] has unlocked, Unlock
// returns an error that matches [ErrClosed]: the lock was not held until now.
func (k *Lock) Unlock(ctx context.Context) error {
	if !k.made() {
		return ErrNotOwner
	}
	if !k.claim() {
		<-k.settled
		return k.result
	}
	k.end(ErrUnlocked)
	k.result = k.dispose(ctx)
	close(k.settled)
	return k.result
}

// close unlocks for Locker.Close, and leaves to later calls of Unlock that it
// was not their doing. It returns what else went wrong.
func (k *Lock) close(ctx context.Context) error {
	if !k.claim() {
		<-k.settled // whoever called Unlock has the answer
		return nil
	}
	k.end(ErrClosed)
	err := k.dispose(ctx)
	k.result = errors.Join(wrap("unlock", k.keys, ErrClosed), err)
	close(k.settled)
	return err
}

// endWith ends a lock together with its Session, which has released it, or lost
// its connection.
func (k *Lock) endWith(why error) {
	if !k.claim() {
		return // Unlock is under way and learns of it
	}
	if lost, ok := errors.AsType[*LostError](why); ok {
		k.result = &LostError{Keys: k.keys, Reason: lost.Reason, Cause: lost.Cause}
		k.end(k.result)
		k.leaveLines(k.result)
	} else {
		k.end(why)
		k.leaveLines(nil) // the Session has unlocked it in good order
		k.result = wrap("unlock", k.keys, why)
	}
	close(k.settled)
}

// leaveLines gives up the places of a Session's lock and tells how it ended.
func (k *Lock) leaveLines(err error) {
	k.locker.vacate(k.targets, k.occupants, nil)
	k.locker.ended(End{Lock: k, Held: k.held, Err: err})
}

// lose runs on the watch's goroutine.
func (k *Lock) lose(loss *connhold.Loss) {
	if !k.claim() {
		return // Unlock is under way and learns of the loss itself
	}
	k.result = lostBy(k.keys, loss)
	k.end(k.result)
	_ = k.seat.take(context.Background()) // a transaction may be about to find the loss too
	k.settle(k.result)
	k.seat.pass()
	close(k.settled)
}

// dispose unlocks and gives the session away.
func (k *Lock) dispose(ctx context.Context) error {
	if k.in != nil {
		err := k.in.unlock(k)
		k.leaveLines(err)
		return err
	}
	start := time.Now()
	limit := k.locker.config.UnlockTimeout
	if !k.seat.takeWithin(limit) {
		return k.abort()
	}
	defer k.seat.pass()
	err := k.release(ctx, limit-time.Since(start))
	k.settle(err)
	return err
}

// abort ends the session under a transaction that does not end.
func (k *Lock) abort() error {
	err := wrap("unlock", k.keys, errTxRuns)
	k.seat.hold.Kill()
	// Ends when the transaction's function returns; nobody can wait for that.
	go func() {
		_ = k.seat.take(context.Background())
		k.settle(err)
		k.seat.pass()
	}()
	return err
}

// release unlocks on the server. The caller has the turn.
func (k *Lock) release(ctx context.Context, limit time.Duration) error {
	start := time.Now()
	hold := k.seat.hold
	if loss := hold.Unwatch(limit); loss != nil {
		return lostBy(k.keys, loss)
	}
	sql, args := unlockAllSQL(k.seat.session), unlockAllArgs(k.locks)
	if len(k.locks) == 1 {
		sql, args = unlockSQL(k.locks[0], k.seat.session), k.locks[0].args()
	}
	var owned bool
	err := hold.Run(ctx, limit-time.Since(start), func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sql, args...).Scan(&owned)
	})
	if err != nil {
		return unlockError(k.keys, err)
	}
	if !owned {
		hold.Taint()
		return &LostError{Keys: k.keys, Reason: LostNotHeld, Cause: ErrNotOwner}
	}
	return nil
}

// claim makes the caller the one who ends the hold, unless another is already.
func (k *Lock) claim() bool {
	if !k.claimed.CompareAndSwap(false, true) {
		return false
	}
	k.held = time.Since(k.granted)
	if k.in != nil {
		return true
	}
	l := k.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leaving++
	return true
}

// settle passes the lock's places on, with the connection if that is clean and
// can be used there, and tells how the hold ended.
func (k *Lock) settle(err error) {
	l, hold := k.locker, k.seat.hold
	if !hold.IsClean() {
		l.unpin(hold.Destroy)
		l.vacate(k.targets, k.occupants, nil)
	} else if used := l.vacate(k.targets, k.occupants, hold); !used {
		l.unpin(hold.Release)
	}
	l.mu.Lock()
	l.leaving--
	l.changedLocked()
	l.mu.Unlock()
	l.ended(End{Lock: k, Held: k.held, Err: err})
}

// made reports whether k comes from a Locker.
func (k *Lock) made() bool { return k != nil && k.locker != nil }

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
