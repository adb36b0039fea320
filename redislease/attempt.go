package redislease

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/lockerr"
)

// attempt asks Redis once for the lock. Without a lease and without an error another
// holds it, for as long as left says, or without an end if that is negative.
//
// A command that is on its way does not end with its context, so that it runs on a
// goroutine of its own where ctx can end.
func (l *Leaser) attempt(ctx context.Context, resource string, k keys) (lease *Lease, left time.Duration, err error) {
	owner := newOwner()
	sent := l.now()
	if ctx.Done() == nil {
		a, err := acquire(ctx, l.client, k, owner, l.config.TTL)
		return l.granted(resource, k, owner, sent, a, err)
	}
	type result struct {
		grantAnswer
		err error
	}
	var taken atomic.Bool // by the first of the caller and the end of ctx
	answers := make(chan result, 1)
	isOpen := l.spawn(func() {
		a, err := acquire(ctx, l.client, k, owner, l.config.TTL)
		if taken.CompareAndSwap(false, true) {
			answers <- result{a, err}
			return
		}
		if a.token > 0 || err != nil {
			l.keeper.abandon(k.lock, owner)
		}
	})
	if !isOpen {
		return nil, 0, ErrClosed
	}
	select {
	case r := <-answers:
		return l.granted(resource, k, owner, sent, r.grantAnswer, r.err)
	case <-ctx.Done():
		err = lockerr.Ended(ctx)
	case <-l.closing:
		err = ErrClosed
	}
	if taken.CompareAndSwap(false, true) {
		return nil, 0, err
	}
	r := <-answers
	return l.granted(resource, k, owner, sent, r.grantAnswer, r.err)
}

// granted makes a lease of an answer that grants one, if it is not over by now.
func (l *Leaser) granted(resource string, k keys, owner string, sent time.Duration, a grantAnswer, err error) (*Lease, time.Duration, error) {
	if err != nil {
		// Redis may have run the script all the same.
		l.keeper.abandon(k.lock, owner)
		return nil, 0, unavailable(err)
	}
	if a.token == 0 {
		return nil, a.left, nil
	}
	now := l.now()
	lease := &Lease{
		leaser: l, resource: resource, lock: k.lock, owner: owner, token: a.token,
		confirmed: sent, safeUntil: sent + l.config.trusted(),
	}
	if d := l.config.MaxHold; d > 0 {
		lease.lastUntil = now + d
	}
	if now >= lease.safeUntil {
		l.keeper.abandon(k.lock, owner)
		return nil, 0, tooLate(now-sent, l.config.trusted())
	}
	if !l.keeper.add(lease) {
		l.keeper.abandon(k.lock, owner)
		return nil, 0, ErrClosed
	}
	return lease, 0, nil
}
