package redislease

import (
	"context"
	"errors"

	"github.com/pgadvisory/pgadvisory/internal/critical"
	"github.com/pgadvisory/pgadvisory/internal/election"
	"github.com/pgadvisory/pgadvisory/internal/lockerr"
)

// Do waits for the lock as [Leaser.Lock] does, calls fn while holding it and unlocks
// after fn has returned, panicked or ended its goroutine. fn's context ends when ctx
// does and when the lease ends, with the lease's Err as its cause.
//
// Do returns Lock's error if fn was not called. Else it returns fn's error, joined with
// Unlock's: when the lease was lost meanwhile, Do's error matches ErrLost even if fn's is
// nil.
func (l *Leaser) Do(ctx context.Context, resource string, fn func(context.Context, *Lease) error) error {
	lease, err := l.Lock(ctx, resource)
	if err != nil {
		return err
	}
	return critical.Run(ctx, lease, fn)
}

// TryDo is Do with [Leaser.TryLock]: it returns ErrNotAcquired without calling fn when
// another holds the lock.
func (l *Leaser) TryDo(ctx context.Context, resource string, fn func(context.Context, *Lease) error) error {
	lease, err := l.TryLock(ctx, resource)
	if err != nil {
		return err
	}
	return critical.Run(ctx, lease, fn)
}

// Lead makes this process a candidate, of whom one leads at a time, until ctx ends. It
// waits for the lock, calls fn while it holds it, and campaigns again when the lease was
// lost. It blocks.
//
// fn is called once for each term, on the caller's goroutine; its context ends with
// the term. Lead returns nil if fn returned nil and the lease was held until the unlock;
// fn's error, joined with Unlock's; an error that matches ctx's when ctx has ended;
// ErrClosed; and at once an error that no waiting mends: ErrInvalidResource, a client that
// is shared and was closed, a login or a permission that Redis refuses. After other errors, and after a
// loss, it pauses for 50 to 100 ms, and for twice as long after each further one in a row,
// up to 5 to 10 s. If the lease was lost while fn ran, what fn returns is dropped.
func (l *Leaser) Lead(ctx context.Context, resource string, fn func(context.Context, *Lease) error) error {
	campaign := election.Campaign[*Lease]{
		Lock:      func(ctx context.Context) (*Lease, error) { return l.Lock(ctx, resource) },
		IsPassing: func(err error, _ bool) bool { return isPassing(err) },
		Closing:   l.closing,
		Ended:     func(ctx context.Context) error { return wrap("lead", resource, lockerr.Ended(ctx)) },
	}
	return campaign.Run(ctx, fn)
}

// Unlock ends the hold and releases the lock, in one round trip. Done is closed before
// Redis is asked.
//
// It returns nil only if Redis held the lock for this lease until now, and the lease
// had not ended for its holder before. Else the error is a [LostError], or one
// that matches ErrUnavailable if Redis did not answer: then the lock ends by its TTL at
// the latest. Unlock works when ctx has ended; it takes only its values, and
// [Config.UnlockTimeout] bounds it. Later calls, and calls at the same time, wait for the
// first and return what it returned.
func (l *Lease) Unlock(ctx context.Context) error {
	if l == nil {
		return ErrNotOwner
	}
	l.expire()
	l.unlocking.Do(func() { l.result = l.leaser.unlock(ctx, l, ErrUnlocked) })
	return l.result
}

// unlock ends a lease with a cause, and releases it.
func (l *Leaser) unlock(ctx context.Context, lease *Lease, cause error) error {
	lease.end(cause)
	l.keeper.remove(lease)
	lease.mu.Lock()
	cause = lease.cause
	lease.mu.Unlock()
	var lost *LostError
	if errors.As(cause, &lost) && (lost.Reason == LostTaken || lost.Reason == LostMissing) {
		return lost // there is nothing to release
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.config.UnlockTimeout)
	defer cancel()
	a, err := l.keeper.release(ctx, lease)
	switch {
	case lost != nil:
		return lost
	case err != nil:
		return wrap("unlock", lease.resource, err)
	case a == answerTaken:
		return &LostError{Resource: lease.resource, Reason: LostTaken, Cause: ErrNotOwner}
	case a == answerMissing:
		return &LostError{Resource: lease.resource, Reason: LostMissing, Cause: ErrNotOwner}
	case errors.Is(cause, ErrClosed):
		return wrap("unlock", lease.resource, ErrClosed)
	default:
		return nil
	}
}
