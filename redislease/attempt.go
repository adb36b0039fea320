package redislease

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pgadvisory/pgadvisory/internal/lockerr"
)

// attempt asks Redis once for the lock. Without a lease and without an error another
// holds it, for as long as left says, or without an end if that is negative.
func (l *Leaser) attempt(ctx context.Context, resource string, k keys) (lease *Lease, left time.Duration, err error) {
	if !l.begin() {
		return nil, 0, ErrClosed
	}
	defer l.work.Done()
	owner := newOwner()
	if l.lanes == nil && ctx.Done() != nil {
		return l.attemptInBackground(ctx, resource, k, owner)
	}
	var a grantAnswer
	if l.lanes == nil {
		a, err = l.acquire(ctx, l.client, k, owner)
	} else {
		notRun := l.lanes.run(ctx, func(client redis.UniversalClient) { a, err = l.acquire(ctx, client, k, owner) })
		if notRun != nil {
			return nil, 0, notRun
		}
	}
	return l.granted(ctx, resource, k, owner, a, err)
}

// attemptInBackground is an attempt on a client that nothing interrupts. It runs on a
// goroutine of its own, and its answer may come when nobody waits for it any more.
func (l *Leaser) attemptInBackground(ctx context.Context, resource string, k keys, owner string) (*Lease, time.Duration, error) {
	type result struct {
		grantAnswer
		err error
	}
	var taken atomic.Bool // by the first of the caller and the end of ctx
	answers := make(chan result, 1)
	// Ends with the command, which the client's timeouts bound; Close waits for it.
	l.work.Go(func() {
		a, err := l.acquire(ctx, l.client, k, owner)
		if taken.CompareAndSwap(false, true) {
			answers <- result{a, err}
			return
		}
		if a.token > 0 || err != nil {
			l.keeper.abandon(k.lock, owner)
		}
	})
	var err error
	select {
	case r := <-answers:
		return l.granted(ctx, resource, k, owner, r.grantAnswer, r.err)
	case <-ctx.Done():
		err = lockerr.Ended(ctx)
	case <-l.closing:
		err = ErrClosed
	}
	if taken.CompareAndSwap(false, true) {
		return nil, 0, err
	}
	r := <-answers
	return l.granted(ctx, resource, k, owner, r.grantAnswer, r.err)
}

// granted makes a lease of an answer that grants one, if it is not over by now.
func (l *Leaser) granted(ctx context.Context, resource string, k keys, owner string, a grantAnswer, err error) (*Lease, time.Duration, error) {
	if err != nil {
		// Redis may have run the script all the same.
		l.keeper.abandon(k.lock, owner)
		return nil, 0, l.failed(ctx, err)
	}
	if a.token == 0 {
		return nil, a.left, nil
	}
	now := l.now()
	lease := &Lease{
		leaser: l, resource: resource, lock: k.lock, owner: owner, token: a.token,
		confirmed: a.sent, safeUntil: a.sent + l.config.trusted(),
	}
	if d := l.config.MaxHold; d > 0 {
		lease.lastUntil = now + d
	}
	if now >= lease.safeUntil {
		l.keeper.abandon(k.lock, owner)
		return nil, 0, tooLate(now-a.sent, l.config.trusted())
	}
	if !l.keeper.add(lease, now) {
		l.keeper.abandon(k.lock, owner)
		return nil, 0, ErrClosed
	}
	return lease, 0, nil
}

// failed says why a call failed that ctx and Close can end.
func (l *Leaser) failed(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && ctx.Done() != nil && !time.Now().Before(deadline) {
		<-ctx.Done() // the client may have noticed first
	}
	if ctx.Err() != nil {
		return lockerr.Ended(ctx)
	}
	select {
	case <-l.closing:
		if !errors.Is(err, ErrClosed) {
			return ErrClosed
		}
		return err
	default:
		return unavailable(err)
	}
}
