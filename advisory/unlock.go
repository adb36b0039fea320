package advisory

import (
	"context"
	"errors"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// Unlock ends the hold and frees the lock. Done is closed before the server is
// asked, so that nobody finds the lock held here while another has it. It frees
// the key even where a function of [Lock.Tx] has locked it once more on the session.
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
// [Config.UnlockTimeout], and a second to close the connection, bound it. That of a
// [Session]'s lock waits for the round trip that is under way besides, each of which
// [Config.HeartbeatTimeout] bounds. Later
// calls, and calls at the same time from other goroutines, wait for the first
// and return what it returned. After [Locker.Close] has unlocked, Unlock
// returns an error that matches [ErrClosed]: the lock was not held until now.
func (k *Lock) Unlock(ctx context.Context) error {
	if !k.made() {
		return ErrNotOwner
	}
	if !k.claim() {
		k.unsettled.Wait()
		return k.result
	}
	k.end(ErrUnlocked)
	k.result = k.dispose(orBackground(ctx))
	k.unsettled.Done()
	k.tell(k.result)
	return k.result
}

// close unlocks for Locker.Close, and leaves to later calls of Unlock that it
// was not their doing. It returns what else went wrong.
func (k *Lock) close(ctx context.Context) error {
	if !k.claim() {
		k.unsettled.Wait() // whoever called Unlock has the answer
		return nil
	}
	k.end(ErrClosed)
	err := k.dispose(ctx)
	k.result = errors.Join(wrap("unlock", k.keys, ErrClosed), err)
	k.unsettled.Done()
	k.tell(err)
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
		k.unhold(k.result)
	} else {
		k.end(why)
		k.result = wrap("unlock", k.keys, why)
		if errors.Is(why, errTxRuns) {
			k.unhold(k.result)
		} else {
			k.unhold(nil) // the Session has unlocked it in good order
		}
	}
	k.unsettled.Done()
}

// unhold gives up the key of a Session's lock in this process, and has the Session tell
// how the lock ended.
func (k *Lock) unhold(err error) {
	k.locker.unhold(k.Targets, k.holders, nil)
	s := k.in.session
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = append(s.ended, End{Lock: k, Held: k.held, Err: err})
}

// tell tells how the hold ended, once nobody waits for this goroutine any more.
func (k *Lock) tell(err error) { k.locker.ended(End{Lock: k, Held: k.held, Err: err}) }

// lose runs on the watch's goroutine.
func (k *Lock) lose(loss *connhold.Loss) {
	if !k.claim() {
		return // Unlock is under way and learns of the loss itself
	}
	k.result = lostBy(k.keys, loss)
	k.end(k.result)
	_ = k.conn.lock(context.Background()) // a transaction may be about to find the loss too
	k.settle()
	k.conn.unlock()
	k.unsettled.Done()
	k.locker.onOwnGoroutine(func() { k.tell(k.result) })
}

// breakOff is lose for a session that was ended under a transaction, which has the
// connection locked.
func (k *Lock) breakOff(loss *connhold.Loss) {
	if !k.claim() {
		return
	}
	k.result = lostBy(k.keys, loss)
	k.end(k.result)
	k.forsake()
	k.unsettled.Done()
	k.locker.onOwnGoroutine(func() { k.tell(k.result) })
}

// dispose unlocks and gives the session away.
func (k *Lock) dispose(ctx context.Context) error {
	if k.in != nil {
		return k.in.unlock()
	}
	start := time.Now()
	limit := k.locker.config.UnlockTimeout
	if !k.conn.lockWithin(limit) {
		return k.abort()
	}
	defer k.conn.unlock()
	err := k.release(ctx, limit-time.Since(start))
	k.settle()
	return err
}

// abort ends the session under a transaction that does not end.
func (k *Lock) abort() error {
	err := wrap("unlock", k.keys, errTxRuns)
	if !k.conn.breakOff(k.conn.running(), txRunsLoss) {
		k.conn.hold.Kill() // it is about to end; the hold does not before forsake has locked it
	}
	k.forsake()
	return err
}

// forsake passes the lock's keys on though a transaction still has the connection locked,
// which has been closed: on the server the lock is free, or about to be. The
// connection is counted out when the transaction's function has returned. That can take
// any time, so nobody is to wait for it.
func (k *Lock) forsake() {
	l := k.locker
	l.unhold(k.Targets, k.holders, nil)
	k.released()
	l.forsake(k.conn, func() { l.unreserve(k.conn.hold.Destroy) })
}

// released ends the time in which the connection is on its way back.
func (k *Lock) released() {
	l := k.locker
	l.mu.Lock()
	defer l.mu.Unlock()
	l.releasing--
	l.capacityChangedLocked()
}

// release unlocks on the server. The caller has locked the connection.
func (k *Lock) release(ctx context.Context, limit time.Duration) error {
	start := time.Now()
	hold := k.conn.hold
	if loss := hold.Unwatch(limit); loss != nil {
		return lostBy(k.keys, loss)
	}
	owned, err := k.conn.session.Release(ctx, limit-time.Since(start), k.locks)
	if err != nil {
		return unlockError(k.keys, err)
	}
	if !owned {
		hold.MarkDirty()
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
	l.releasing++
	return true
}

// settle passes the lock's keys on, with the connection if that is clean and can be used
// there.
func (k *Lock) settle() {
	l, hold := k.locker, k.conn.hold
	if !hold.IsClean() {
		l.unreserve(hold.Destroy)
		l.unhold(k.Targets, k.holders, nil)
	} else if used := l.unhold(k.Targets, k.holders, hold); !used {
		l.unreserve(hold.Release)
	}
	k.released()
}
