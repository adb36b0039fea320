package advisory

import (
	"context"

	"github.com/pgadvisory/pgadvisory/internal/grant"
)

// issuing takes the locks of a Locker with an Issue, for package fencing alone: its
// parameters are of an internal type. Package fencing gets one from package grant, so
// that none of this is exported.
type issuing struct{ locker *Locker }

var _ grant.Locks[Key, *Lock] = issuing{}

func init() {
	grant.Register(func(locker any) any { return issuing{locker.(*Locker)} })
}

func (i issuing) TryLock(ctx context.Context, key Key, issue grant.Issue) (*Lock, int64, error) {
	return i.lock(ctx, "try lock", issuingWaiter(key, true, issue))
}

func (i issuing) Lock(ctx context.Context, key Key, issue grant.Issue) (*Lock, int64, error) {
	return i.lock(ctx, "lock", issuingWaiter(key, false, issue))
}

func (i issuing) lock(ctx context.Context, verb string, w *waiter) (*Lock, int64, error) {
	lock, err := i.locker.acquireOne(ctx, verb, w)
	if err != nil {
		return nil, 0, err
	}
	return lock, lock.receipt, nil
}

func (i issuing) Lead(ctx context.Context, key Key, issue grant.Issue, fn func(context.Context, *Lock, int64) error) error {
	return i.locker.lead(ctx, key, issue, func(ctx context.Context, lock *Lock) error {
		return fn(ctx, lock, lock.receipt)
	})
}

func issuingWaiter(key Key, try bool, issue grant.Issue) *waiter {
	w := newWaiter(key, false, try)
	w.Issue = issue
	return w
}
