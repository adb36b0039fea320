package advisory

import (
	"context"
	"slices"

	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// TryLockAll takes all of the locks or none, on one connection and in one round
// trip. Keys that are given twice, or that are the same lock, are locked once.
// The Lock holds them together: one Unlock frees them all, and they are lost
// together. ErrNotAcquired means that another holds one of them; other errors are
// as with TryLock, and ErrInvalidKey for no keys at all.
func (l *Locker) TryLockAll(ctx context.Context, keys ...Key) (*Lock, error) {
	return l.acquireAll(ctx, "try lock", keys, true)
}

// LockAll waits until it has all of the locks, and holds none of them when it
// returns an error. It takes them in one order, whatever the order of the keys:
// those of one bigint before those of two ints, each by its number. So calls of
// LockAll can't deadlock with each other. Where the server finds a deadlock
// with something else, LockAll gives back what it has and begins anew. While it
// waits for one lock it has those before it. ctx, errors and what else is said of
// the wait are as with Lock.
func (l *Locker) LockAll(ctx context.Context, keys ...Key) (*Lock, error) {
	return l.acquireAll(ctx, "lock", keys, false)
}

func (l *Locker) acquireAll(ctx context.Context, verb string, keys []Key, try bool) (*Lock, error) {
	keys = slices.Clone(keys)
	return l.acquire(ctx, verb, &waiter{request: request{keys: keys}, try: try}, func(w *waiter) (result, error) {
		if err := validateAll(keys); err != nil {
			return result{}, err
		}
		w.Request = lockproto.Request{Targets: targetsOf(keys, false), Name: nameOf(keys)}
		if ctx.Err() != nil {
			return result{}, ended(ctx)
		}
		if err := l.takeTurns(w); err != nil {
			l.unholdCall(w)
			return result{}, err
		}
		return l.await(l.callID(), w)
	})
}

// takeTurns makes w a holder in the queues of all its locks.
func (l *Locker) takeTurns(w *waiter) error {
	if w.try {
		holders := holdersFor(w.Targets)
		if err := l.hold(w.Targets, holders); err != nil {
			return err
		}
		w.holders = holders
		return nil
	}
	for _, t := range w.Targets {
		r, err := l.await(t.ID, &waiter{ctx: w.ctx, request: w.request, shared: t.Shared, turn: true, result: make(chan result, 1)})
		if err != nil {
			return err
		}
		w.holders = append(w.holders, r.holder)
	}
	return nil
}
