// Package election campaigns for a lock, holds it for a term, and campaigns again
// when it was lost.
package election

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/critical"
	"github.com/pgadvisory/pgadvisory/internal/lockerr"
)

// Held is what a term needs of the lock that it is based on.
type Held interface {
	critical.Held
	Err() error
}

// Campaign is how to campaign.
type Campaign[H Held] struct {
	// Lock waits for the lock.
	Lock func(context.Context) (H, error)
	// IsPassing reports whether an error of Lock may be gone at the next call.
	IsPassing func(err error, hasLed bool) bool
	// Closing ends a pause early.
	Closing <-chan struct{}
	// Ended makes the error of a campaign whose context has ended.
	Ended func(context.Context) error
}

const (
	shortestPause = 100 * time.Millisecond
	longestPause  = 10 * time.Second
)

// Run campaigns until a term ends without the loss of the lock, an error does not
// pass, or ctx ends. fn runs once in each term, on the caller's goroutine.
func (c *Campaign[H]) Run(ctx context.Context, fn func(context.Context, H) error) error {
	failures, hasLed := 0, false
	for {
		held, err := c.Lock(ctx)
		switch {
		case err == nil:
			start := time.Now()
			var isLost bool
			if isLost, err = c.term(ctx, held, fn); !isLost {
				return err
			}
			hasLed = true
			if time.Since(start) > longestPause {
				failures = 0
			}
		case ctx.Err() != nil:
			return c.ended(ctx, err)
		case !c.IsPassing(err, hasLed):
			return err
		}
		failures++
		if !c.pause(ctx, Backoff(failures, rand.Float64())) {
			return c.ended(ctx, err)
		}
	}
}

// term is one term. When the lock was lost there is to be another one, and err says
// how it was lost.
func (c *Campaign[H]) term(ctx context.Context, held H, fn func(context.Context, H) error) (isLost bool, err error) {
	var result, atReturn error
	err = critical.Run(ctx, held, func(ctx context.Context, held H) error {
		result = fn(ctx, held)
		atReturn = held.Err()
		return result
	})
	unlocked := held.Unlock(ctx) // once more, for what it returned
	switch {
	case ctx.Err() != nil:
		return false, c.ended(ctx, err)
	case errors.Is(atReturn, lockerr.ErrLost):
		return true, atReturn
	case result != nil && errors.Is(unlocked, lockerr.ErrLost):
		return true, unlocked
	default:
		return false, err
	}
}

// ended is the error of a Run whose ctx has ended, with what else is known.
func (c *Campaign[H]) ended(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) && errors.Is(err, context.Cause(ctx)) {
		return err // says it all
	}
	return errors.Join(c.Ended(ctx), err)
}

// pause reports false if ctx ended first.
func (c *Campaign[H]) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.Closing:
		return true
	case <-ctx.Done():
		return false
	}
}

// Backoff is how long to pause after so many failures in a row, at least one.
// The jitter, from 0 to 1, takes off up to a half.
func Backoff(failures int, jitter float64) time.Duration {
	doublings := min(failures-1, 10) // far beyond longestPause, far below an overflow
	pause := min(shortestPause<<doublings, longestPause)
	return pause - time.Duration(jitter*float64(pause/2))
}

// PassesSQLState reports whether an error with that SQLSTATE may be gone the next time:
// not one of a login, a name or a privilege, or of what the server can't do.
func PassesSQLState(code string) bool {
	if len(code) < 2 {
		return true
	}
	switch code[:2] {
	case "0A", "28", "3D", "3F", "42":
		return false
	default:
		return true
	}
}
