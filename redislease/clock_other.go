//go:build !linux

package redislease

import (
	"sync"
	"time"
)

// systemClock counts the time in which the machine sleeps: of the two clocks that
// Go reads, the one that has advanced further since the last reading. The monotonic
// one may stand still in that time. The wall clock does not, and one that is set
// forward only ends leases early.
func systemClock() func() time.Duration {
	var mu sync.Mutex // guards the variables below
	last, total := time.Now(), time.Duration(0)
	return func() time.Duration {
		mu.Lock()
		defer mu.Unlock()
		now := time.Now()
		total += max(now.Sub(last), now.Round(0).Sub(last.Round(0)))
		last = now
		return total
	}
}
