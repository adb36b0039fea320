package stopwatch

import "time"

// Freeze keeps the stopwatch's goroutine from running for a time.
func Freeze(s *Stopwatch, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	<-time.After(d)
}
