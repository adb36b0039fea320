package connhold

import (
	"sync"
	"time"
)

// Alarms does something at a time unless that is called off first, which is
// nearly always so. Setting one and calling it off costs no more than the mutex:
// one timer serves them all, and goes by the earliest that it was ever set for.
// A timer, or a deadline, for each would wake a thread each time.
//
// The zero Alarms is ready. It has no goroutine while none is due.
type Alarms struct {
	// mu guards the fields below and those of every alarm that is set. Nothing
	// blocks under it.
	mu    sync.Mutex
	timer *time.Timer
	next  time.Time // when the timer fires; zero when it does not
	set   []*Alarm
}

// Alarm is one of them, set or not.
type Alarm struct {
	at    time.Time
	ring  func()
	place int // in Alarms.set, from 1; 0 when it is not set
}

// Set has ring called at a time, on a goroutine that it must not block. The alarm
// must not be set already.
func (a *Alarms) Set(alarm *Alarm, at time.Time, ring func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	alarm.at, alarm.ring = at, ring
	a.set = append(a.set, alarm)
	alarm.place = len(a.set)
	if a.next.IsZero() || at.Before(a.next) {
		a.armLocked(at)
	}
}

// Off calls the alarm off. It reports false if it was rung already, or is about
// to be.
func (a *Alarms) Off(alarm *Alarm) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if alarm.place == 0 {
		return false
	}
	a.removeLocked(alarm)
	return true
}

func (a *Alarms) removeLocked(alarm *Alarm) {
	last := len(a.set) - 1
	a.set[alarm.place-1] = a.set[last]
	a.set[alarm.place-1].place = alarm.place
	a.set[last] = nil
	a.set = a.set[:last]
	alarm.place = 0
}

func (a *Alarms) armLocked(at time.Time) {
	a.next = at
	if a.timer == nil {
		a.timer = time.AfterFunc(time.Until(at), a.fire)
		return
	}
	a.timer.Reset(time.Until(at))
}

// fire rings what is due.
func (a *Alarms) fire() {
	for _, ring := range a.due(time.Now()) {
		ring()
	}
}

// due takes out the alarms that are due and arms the timer for the first of the
// others.
func (a *Alarms) due(now time.Time) (due []func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var next time.Time
	for i := len(a.set) - 1; i >= 0; i-- { // the last comes into the place of one that goes
		alarm := a.set[i]
		switch {
		case !alarm.at.After(now):
			due = append(due, alarm.ring)
			a.removeLocked(alarm)
		case next.IsZero() || alarm.at.Before(next):
			next = alarm.at
		}
	}
	a.next = time.Time{}
	if !next.IsZero() {
		a.armLocked(next)
	}
	return due
}
