// Package stopwatch measures, for tests of a time limit, the time in which this
// process could run.
//
// On a busy machine a process that has work to do waits for its turn, and so do
// the servers that it talks to. A limit on what the code under test takes must
// not be one on that. So a goroutine sleeps for a millisecond at a time, and by
// as much as it oversleeps the others are taken to have been late as well. On a
// quiet machine next to nothing is taken off.
package stopwatch

import (
	"sync"
	"time"
)

// tick is how long the goroutine sleeps.
const tick = time.Millisecond

// A Stopwatch runs from [Start] to [Stopwatch.Stop]. Its methods are safe for
// concurrent use.
type Stopwatch struct {
	start time.Time
	stop  chan struct{}
	once  sync.Once
	done  sync.WaitGroup

	mu   sync.Mutex // guards the fields below
	seen time.Time  // until when late is complete
	late time.Duration
}

// Start returns a stopwatch that runs. Somebody must call Stop.
func Start() *Stopwatch {
	now := time.Now()
	s := &Stopwatch{start: now, seen: now, stop: make(chan struct{})}
	s.done.Go(s.watch) // until Stop, which waits for it
	return s
}

func (s *Stopwatch) watch() {
	ticker := time.NewTimer(tick)
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		s.look()
		ticker.Reset(tick)
	}
}

// look adds what has passed since the last look, but for a tick.
func (s *Stopwatch) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.late += max(0, now.Sub(s.seen)-tick)
	s.seen = now
}

// Net returns the time since the start in which this process could run.
func (s *Stopwatch) Net() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	return now.Sub(s.start) - s.late - max(0, now.Sub(s.seen)-tick)
}

// Stop ends the stopwatch, and returns Net as of now. Later calls wait for the end
// as well.
func (s *Stopwatch) Stop() time.Duration {
	net := s.Net()
	s.once.Do(func() { close(s.stop) })
	s.done.Wait()
	return net
}
