package advisory

import (
	"context"

	"github.com/pgadvisory/pgadvisory/internal/critical"
)

// Do waits for the lock as [Locker.Lock] does, calls fn while holding it and
// unlocks after fn has returned. fn's context ends when ctx does and when the
// lock is lost, with the [LostError] as its cause.
//
// Do returns Lock's error if fn was not called. Else it returns fn's error,
// joined with Unlock's: when the lock was lost meanwhile, Do's error matches
// ErrLost even if fn's is nil, and ErrClosed when [Locker.Close] unlocked it. If
// fn unlocks by itself, the rest of it runs without the lock. If fn panics the
// lock is unlocked and the panic goes on.
func (l *Locker) Do(ctx context.Context, key Key, fn func(context.Context, *Lock) error) error {
	lock, err := l.Lock(ctx, key)
	if err != nil {
		return err
	}
	return critical.Run(ctx, lock, fn)
}

// TryDo is Do with [Locker.TryLock]: it returns ErrNotAcquired without calling
// fn when another holds the lock.
func (l *Locker) TryDo(ctx context.Context, key Key, fn func(context.Context, *Lock) error) error {
	lock, err := l.TryLock(ctx, key)
	if err != nil {
		return err
	}
	return critical.Run(ctx, lock, fn)
}
