package advisory

import (
	"context"
	"time"
)

const (
	shortestPause = 100 * time.Millisecond
	longestPause  = 10 * time.Second
)

// backoff is how long to pause after so many failures in a row, at least one.
// The jitter, from 0 to 1, takes off up to a half.
func backoff(failures int, jitter float64) time.Duration {
	doublings := min(failures-1, 10) // far beyond longestPause, far below an overflow
	pause := min(shortestPause<<doublings, longestPause)
	return pause - time.Duration(jitter*float64(pause/2))
}

// pause ends early when the Locker is closed, and reports false if ctx ended
// first.
func (l *Locker) pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.closing:
		return true
	case <-ctx.Done():
		return false
	}
}
