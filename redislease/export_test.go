package redislease

import "time"

// SetClock gives a Leaser that was not used yet another clock.
func SetClock(l *Leaser, now func() time.Duration) { l.now = now }

// SystemClock is the clock of a Leaser.
var SystemClock = systemClock

// KeysOf returns the names of a resource's lock and counter.
func KeysOf(prefix string, counters int, resource string) (lock, counter string, err error) {
	k, err := keysOf(prefix, counters, resource)
	return k.lock, k.counter, err
}

// Waiting is how many calls of this process wait for a lock.
func Waiting(l *Leaser, lock string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ln := l.lines[lock]; ln != nil {
		return len(ln.waiters)
	}
	return 0
}

// Beat renews all leases of a Leaser now.
func Beat(l *Leaser) {
	k := l.keeper
	k.mu.Lock()
	defer k.mu.Unlock()
	for lease := range k.leases {
		lease.mu.Lock()
		lease.confirmed -= l.config.TTL // not a moment ago
		lease.mu.Unlock()
	}
	k.nextBeat = l.now()
	k.wake()
}

// LeaserOf is the Leaser of a lease.
func LeaserOf(l *Lease) *Leaser { return l.leaser }

// Until is when a lease ends, on its own clock.
func Until(l *Lease) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.safeUntil
}

// KeepLanes has a Leaser that was not used yet keep idle connections for so long.
func KeepLanes(l *Leaser, d time.Duration) { l.lanes.keep = d }
