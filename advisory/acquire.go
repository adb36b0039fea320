package advisory

import (
	"context"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// TryLock takes the lock if it is free. Once it has a connection of the pool, it
// answers in one round trip, after the few with which pgx prepares the statement
// and the Locker meets the server on a new connection; without any, when this
// Locker holds the lock or is asking for it already.
//
// ctx bounds the call, and the wait for the pool with it, and not the hold. On
// an error no lock is kept: ErrNotAcquired when another holds the lock;
// ErrPoolExhausted, ErrInvalidKey or ErrClosed; ErrPooler, ErrStandby or
// ErrUnsupportedServer for a connection that leads to where no lock can be held;
// ErrLockTableFull; ctx's error when ctx ends first; else what pgx said. A server
// that can't be reached may keep the lock for a session that it has not given up
// yet; see [Config.VanishTimeout].
func (l *Locker) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return l.acquireOne(ctx, "try lock", newWaiter(key, false, true))
}

// Lock waits until the lock is granted or ctx ends.
//
// Calls of one Locker for one key are served in the order in which they came,
// and use one connection together while they wait. Between sessions the order is
// not strict. A waiting session re-queues about three times a second, so that it
// delays neither VACUUM nor CREATE INDEX CONCURRENTLY by more than that. So a
// steady stream of readers can starve a writer. Of the sessions that wait for one
// lock, four wait on the server. The others ask again after a quarter of the time
// that they have waited, and after 5 s at most; see "How a lock is acquired" in the
// package documentation. A wait needs the language plpgsql, which every
// database has by default. The lock is not re-entrant: a call that waits for a
// lock which its own goroutine holds waits until ctx ends.
//
// ctx bounds the wait and not the hold. Errors are as with TryLock, but for
// ErrNotAcquired; ctx's says what was waited for. When the grant and the end of
// ctx meet, either may win. A wait that was given up can still get the lock on
// the server, for the moment that it takes to give it back.
func (l *Locker) Lock(ctx context.Context, key Key) (*Lock, error) {
	return l.acquireOne(ctx, "lock", newWaiter(key, false, false))
}

// TryRLock is TryLock in the shared mode: any number of sessions hold a lock in
// that mode at the same time, while none holds it exclusively. Each has a
// connection of its own. There is no way from one mode to the other but to
// unlock.
func (l *Locker) TryRLock(ctx context.Context, key Key) (*Lock, error) {
	return l.acquireOne(ctx, "try shared lock", newWaiter(key, true, true))
}

// RLock is Lock in the shared mode; see TryRLock. It does not overtake a call of
// this Locker for the exclusive mode that came first.
func (l *Locker) RLock(ctx context.Context, key Key) (*Lock, error) {
	return l.acquireOne(ctx, "shared lock", newWaiter(key, true, false))
}

// newWaiter makes a waiter for one lock.
func newWaiter(key Key, shared, try bool) *waiter {
	w := &waiter{shared: shared, try: try}
	w.scratch.key[0], w.scratch.target[0] = key, lockid.Target{ID: key.lockID(), Shared: shared}
	w.request = request{Request: lockproto.Request{Targets: w.scratch.target[:], Name: key.label()}, keys: w.scratch.key[:]}
	return w
}

// acquireOne takes one lock, or one slot of a semaphore.
func (l *Locker) acquireOne(ctx context.Context, verb string, w *waiter) (*Lock, error) {
	return l.acquire(ctx, verb, w, l.awaitOne)
}

func (l *Locker) awaitOne(w *waiter) (result, error) {
	if err := w.keys[0].validate(); err != nil {
		return result{}, err
	}
	if w.semaphore != nil {
		if err := w.semaphore.validate(); err != nil {
			return result{}, err
		}
	}
	return l.await(w.Targets[0].ID, w)
}

// acquire takes the locks of w by a function that awaits the result, and tells the
// Observer.
func (l *Locker) acquire(ctx context.Context, verb string, w *waiter, await func(*waiter) (result, error)) (*Lock, error) {
	start := time.Now()
	a := w.attempt()
	told := l.attempting(ctx, a)
	w.ctx, w.result = ctx, make(chan result, 1)
	r, err := result{}, errNilContext
	if ctx != nil {
		r, err = await(w)
	}
	if err != nil {
		err = wrap(verb, w.keys, err)
	} else {
		a.Keys = r.lock.keys
	}
	a.Waited, a.Lock, a.Err = time.Since(start), r.lock, err
	l.attempted(told, a)
	return r.lock, err
}

// attempt is what an Observer is told of w's call.
func (w *waiter) attempt() Attempt {
	if w.semaphore != nil { // its keys are those of no lock
		return Attempt{Semaphore: w.semaphore.name, Try: w.try}
	}
	return Attempt{Keys: w.keys, Shared: w.shared, Try: w.try, Lead: w.lead}
}

// await waits in a queue for the result of w, and leaves the queue when w's ctx ends.
func (l *Locker) await(id lockid.ID, w *waiter) (result, error) {
	if w.ctx.Err() != nil {
		l.unholdCall(w)
		return result{}, ended(w.ctx)
	}
	q, acquires, err := l.join(id, w)
	if err != nil {
		l.unholdCall(w)
		return result{}, err
	}
	if acquires {
		l.acquireFor(q, w)
	}
	select {
	case r := <-w.result:
		return r, r.err
	case <-w.ctx.Done():
	}
	if err := l.leave(q, w); err != nil {
		return result{}, err
	}
	// Served in the same instant: the result is there, or about to be.
	r := <-w.result
	return r, r.err
}
