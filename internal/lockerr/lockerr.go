// Package lockerr has the errors that the packages of locks share, so that a caller
// finds them with errors.Is whichever service keeps the lock. Package advisory
// exports them; package redislease has errors of its own text that match them.
package lockerr

import (
	"context"
	"errors"
	"fmt"
)

// The comments are those of package advisory.
var (
	ErrNotAcquired = errors.New("advisory: not acquired")
	ErrUnlocked    = errors.New("advisory: unlocked")
	ErrLost        = errors.New("advisory: lock lost")
	ErrInvalidKey  = errors.New("advisory: invalid key")
	ErrNotOwner    = errors.New("advisory: not the owner of the lock")
	ErrClosed      = errors.New("advisory: closed")

	ErrStandby           = errors.New("advisory: the server is a standby")
	ErrUnsupportedServer = errors.New("advisory: unsupported server")
)

// Ended is the error of a context that has ended, with its cause where that says more.
func Ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}
