package advisory

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// Lock is a lock, or several, held on a pinned connection. It is for one use:
// once it has ended it stays ended. All methods are safe for concurrent use,
// and for calls on a nil Lock.
//
// A Lock can end at any time and for many reasons: a backend terminated by an
// administrator, a server that restarts or fails over, a network that breaks.
// The server frees the lock at once then, and this process learns of it a
// moment later: milliseconds when the server or the network says so, at most
// [Config.Heartbeat] + [Config.HeartbeatTimeout] when all goes silent, or
// [Config.TxTimeout] in the middle of a [Lock.Tx], and any time at all when the
// process itself is stopped. In between two holders
// believe that they hold. What must not be written twice needs package
// fencing.
type Lock struct {
	locker *Locker
	request
	locks   []lockid.Target // on the server
	holders []*holder       // in the queues of its targets
	conn    *heldConn
	in      *sessionLock // if the connection is a Session's
	receipt int64
	granted time.Time

	ending

	// The first of Unlock and the watch to claim the lock disposes of its
	// connection, sets result, and lets unsettled go to zero.
	claimed   atomic.Bool
	held      time.Duration
	unsettled sync.WaitGroup
	result    error
}

// pinnedLock is a Lock with a connection of its own. It comes in one piece.
type pinnedLock struct {
	Lock
	pinned  heldConn
	holder  holder
	holding [1]*holder
}

// newLock makes a Lock of what an attempt has got. Without holders it makes one itself.
// The caller holds the Locker's mu, so that nobody can unlock what is not watched yet.
func (l *Locker) newLock(r request, holders []*holder, a *attempt) *Lock {
	p := new(pinnedLock)
	if holders == nil {
		p.holder.shared = r.isShared()
		p.holding[0] = &p.holder
		holders = p.holding[:]
	}
	k := &p.Lock
	k.locker, k.request, k.locks, k.holders, k.granted = l, r, r.Targets, holders, time.Now()
	k.unsettled.Add(1)
	if !r.Issue.IsZero() {
		k.receipt = a.answer.Receipt
	}
	if s := r.semaphore; s != nil {
		slot := s.slot(a.answer.Slot)
		k.keys = []Key{slot}
		k.locks = []lockid.Target{{ID: slot.lockID()}, {ID: lockid.OfNumber(s.announcement()), Shared: true}}
	}
	for _, h := range holders {
		h.lock = k
	}
	k.conn = &p.pinned
	k.conn.init(a, k)
	k.conn.watch()
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
	return k.conn.pid
}

// Done returns a channel that is closed once the lock is not held any more:
// when Unlock or [Locker.Close] begins, or when the loss of the session is
// noticed. That it is open does not prove that the lock is held; see [Lock].
func (k *Lock) Done() <-chan struct{} {
	if !k.made() {
		return closedChan
	}
	return k.context().Done()
}

// Err returns nil while the lock is held for all that is known, and then what
// ended it first: [ErrUnlocked] for Unlock, whatever that found out and
// returned, [ErrClosed] for [Locker.Close], and a [LostError] for a loss that
// was noticed. It does not ask the server.
func (k *Lock) Err() error {
	if !k.made() {
		return ErrNotOwner
	}
	return k.why()
}

// Context returns a context that ends with parent, with the lock, or when
// cancel is called. [context.Cause] tells why: it is what Err returns if the
// lock ended first. The caller must call cancel to free its resources. A nil parent
// never ends.
func (k *Lock) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(orBackground(parent))
	if !k.made() {
		cancel(ErrNotOwner)
		return ctx, func() {}
	}
	if err := k.Err(); err != nil {
		cancel(err)
		return ctx, func() {}
	}
	stop := context.AfterFunc(k.context(), func() { cancel(k.Err()) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// made reports whether k comes from a Locker.
func (k *Lock) made() bool { return k != nil && k.locker != nil }

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
