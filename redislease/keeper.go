package redislease

import (
	"sync"
	"time"
)

const (
	// lookEvery is how often the keeper looks at the clock at least. Its timers stand
	// still while the machine sleeps.
	lookEvery = 100 * time.Millisecond

	// idleLooks is how often the keeper finds nothing to keep before its goroutine ends.
	// A goroutine for each short lease would cost more than the lease.
	idleLooks = 10
)

// keeper renews the leases of a Leaser, ends those whose time has come, and releases
// what was abandoned. Its goroutine runs while there is something to keep, and a second
// longer; it never waits for Redis, so that an answer which does not come delays nothing.
type keeper struct {
	leaser *Leaser
	poke   chan struct{} // that there is something to do, for the goroutine

	// mu guards the fields below. Nothing blocks under it. It is taken before that of a
	// Lease.
	mu        sync.Mutex
	running   bool
	looksAt   time.Duration // the goroutine, if nobody pokes it
	idle      int           // looks in a row that found nothing to keep
	closed    bool
	leases    map[*Lease]struct{}
	earliest  time.Duration // no lease ends before
	nextBeat  time.Duration
	beats     uint64               // that were begun
	abandoned map[string]abandoned // by owner
	sweeping  bool
	nextSweep time.Duration
}

func newKeeper(l *Leaser) *keeper {
	return &keeper{
		leaser: l, poke: make(chan struct{}, 1),
		leases: make(map[*Lease]struct{}), abandoned: make(map[string]abandoned),
	}
}

// add begins to keep a lease, unless the Leaser is closed.
func (k *keeper) add(lease *Lease, now time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return false
	}
	until := lease.until() // nobody else has it yet
	if len(k.leases) == 0 {
		k.earliest, k.nextBeat = until, now+k.leaser.config.renewEvery()
	}
	k.earliest = min(k.earliest, until)
	k.leases[lease] = struct{}{}
	return k.startLocked(min(k.earliest, k.nextBeat))
}

// startLocked has the goroutine look at a time, or before. mu must be held.
func (k *keeper) startLocked(at time.Duration) bool {
	if !k.running {
		k.running, k.idle, k.looksAt = k.leaser.spawn(k.run), 0, at
		return k.running
	}
	if at < k.looksAt {
		k.wake()
	}
	return true
}

func (k *keeper) wake() {
	select {
	case k.poke <- struct{}{}:
	default: // it will look
	}
}

// remove ends the keeping of a lease.
func (k *keeper) remove(lease *Lease) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.leases, lease)
}

// run ends when there was nothing to keep for a while, or with the Leaser.
func (k *keeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.poke:
		case <-k.leaser.closing:
			return
		}
		pause, isIdle := k.step()
		if isIdle {
			return
		}
		timer.Reset(pause)
	}
}

// step does what is due, and says when to look again.
func (k *keeper) step() (pause time.Duration, isIdle bool) {
	k.expire()
	k.mu.Lock()
	defer k.mu.Unlock()
	now := k.leaser.now()
	pause = lookEvery
	if len(k.leases) == 0 && len(k.abandoned) == 0 {
		if k.idle++; k.idle > idleLooks {
			k.running = false
			return 0, true
		}
	} else {
		k.idle = 0
	}
	if len(k.leases) > 0 {
		if now >= k.nextBeat {
			k.beatLocked(now)
		}
		pause = min(pause, k.nextBeat-now, k.earliest-now)
	}
	if len(k.abandoned) > 0 && !k.sweeping {
		if now >= k.nextSweep {
			k.sweepLocked(now)
		} else {
			pause = min(pause, k.nextSweep-now)
		}
	}
	pause = max(pause, 0)
	k.looksAt = now + pause
	return pause, false
}

// expire ends the leases whose time has come.
func (k *keeper) expire() {
	k.mu.Lock()
	now := k.leaser.now()
	if len(k.leases) == 0 || now < k.earliest {
		k.mu.Unlock()
		return
	}
	var over []*Lease
	k.earliest = now + k.leaser.config.TTL
	for lease := range k.leases {
		lease.mu.Lock()
		until := lease.until()
		lease.mu.Unlock()
		if until <= now {
			over = append(over, lease)
		} else {
			k.earliest = min(k.earliest, until)
		}
	}
	k.mu.Unlock()
	for _, lease := range over {
		lease.expire()
	}
}
