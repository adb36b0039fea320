package otel

// Open returns of how many locks the Observer keeps something.
func (o *Observer) Open() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.holds)
}
