package connhold

import (
	"sync"
	"time"
)

// Timers is a set of timers that nearly always stop before they fire. Setting one
// and stopping it costs a mutex: one runtime timer serves them all and goes by the
// earliest time it was ever set for. A runtime timer for each, or a deadline on the
// socket, would wake a thread each time.
//
// The zero Timers is ready to use. It has no goroutine while no timer is due.
type Timers struct {
	// mu guards the fields below and those of every timer that is set. Nothing
	// blocks under it.
	mu    sync.Mutex
	timer *time.Timer
	next  time.Time // when the runtime timer fires; zero when it does not
	set   []*Timer
}

// Timer is one of the set. The zero Timer is not set.
type Timer struct {
	at    time.Time
	fire  func()
	place int // in Timers.set, from 1; 0 when it is not set
}

// Set calls fire at a time, on a goroutine that fire must not block. The timer must
// not be set already.
func (t *Timers) Set(timer *Timer, at time.Time, fire func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	timer.at, timer.fire = at, fire
	t.set = append(t.set, timer)
	timer.place = len(t.set)
	if t.next.IsZero() || at.Before(t.next) {
		t.armLocked(at)
	}
}

// Stop stops the timer. It reports false if the timer has fired already, or is about
// to.
func (t *Timers) Stop(timer *Timer) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if timer.place == 0 {
		return false
	}
	t.removeLocked(timer)
	return true
}

func (t *Timers) removeLocked(timer *Timer) {
	last := len(t.set) - 1
	t.set[timer.place-1] = t.set[last]
	t.set[timer.place-1].place = timer.place
	t.set[last] = nil
	t.set = t.set[:last]
	timer.place = 0
}

func (t *Timers) armLocked(at time.Time) {
	t.next = at
	if t.timer == nil {
		t.timer = time.AfterFunc(time.Until(at), t.fireDue)
		return
	}
	t.timer.Reset(time.Until(at))
}

func (t *Timers) fireDue() {
	for _, fire := range t.due(time.Now()) {
		fire()
	}
}

// due removes the timers that are due and arms the runtime timer for the earliest of
// the others.
func (t *Timers) due(now time.Time) (due []func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var next time.Time
	for i := len(t.set) - 1; i >= 0; i-- { // removeLocked moves the last one to the place of i
		timer := t.set[i]
		switch {
		case !timer.at.After(now):
			due = append(due, timer.fire)
			t.removeLocked(timer)
		case next.IsZero() || timer.at.Before(next):
			next = timer.at
		}
	}
	t.next = time.Time{}
	if !next.IsZero() {
		t.armLocked(next)
	}
	return due
}
