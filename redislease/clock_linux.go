package redislease

import (
	"time"

	"golang.org/x/sys/unix"
)

// systemClock reads a clock that counts the time in which the machine sleeps. Go's
// monotonic clock stands still then.
func systemClock() func() time.Duration {
	return func() time.Duration {
		var now unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
			panic("BUG: no CLOCK_BOOTTIME: " + err.Error()) // Linux has it since 2.6.39
		}
		return time.Duration(now.Nano())
	}
}
