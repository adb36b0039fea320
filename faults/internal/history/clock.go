//go:build unix

package history

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Time is a reading of the machine's monotonic clock, in nanoseconds. It is 0
// for what has not happened.
type Time int64

// Now reads the clock.
func Now() Time {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(fmt.Sprintf("BUG: history: no monotonic clock: %v", err)) // every unix has it
	}
	return Time(ts.Nano())
}

// Add returns a later time.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub is how much later t is.
func (t Time) Sub(earlier Time) time.Duration { return time.Duration(t - earlier) }
