// Package critical runs a function while a lock is held.
package critical

import (
	"context"
	"errors"
)

// Held is what a critical section needs of the lock that guards it.
type Held interface {
	Context(parent context.Context) (context.Context, context.CancelFunc)
	Unlock(ctx context.Context) error
}

// Run calls fn with a context that ends when held is lost, and unlocks after
// fn has returned, panicked or ended its goroutine. It returns fn's error
// joined with the unlock's, so that neither hides the other. A panic goes on
// after the unlock.
func Run[H Held](ctx context.Context, held H, fn func(context.Context, H) error) (err error) {
	ctx, cancel := held.Context(ctx)
	defer cancel()
	defer func() {
		if unlockErr := held.Unlock(ctx); unlockErr != nil {
			err = errors.Join(err, unlockErr)
		}
	}()
	return fn(ctx, held)
}
