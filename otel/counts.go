package otel

import (
	"maps"
	"sync"

	"go.opentelemetry.io/otel/attribute"
)

// The instruments that are asked for their values.
const (
	waitingName = "pgadvisory.lock.waiting"
	heldName    = "pgadvisory.lock.held"
	leadingName = "pgadvisory.lead.terms"
	lostName    = "pgadvisory.lock.lost"
	refusedName = "pgadvisory.write.refused"
)

// series is one value of one of them.
type series struct {
	name string
	attr attribute.KeyValue
}

// counts are their values.
type counts struct {
	// mu guards the field below. Nothing is reported under it: exporters are
	// others' code.
	mu     sync.Mutex
	values map[series]int64
}

// newCounts begins with all that can be counted at 0, so that the first increase of
// each is seen as one. The keys of elections are not known before.
func newCounts() *counts {
	c := &counts{values: make(map[series]int64)}
	for _, mode := range []string{exclusive, shared, semaphore} {
		c.add(waitingName, modeKey.String(mode), 0)
		c.add(heldName, modeKey.String(mode), 0)
	}
	for _, reason := range reasons {
		c.add(lostName, reasonKey.String(string(reason)), 0)
	}
	for _, reason := range []string{stale, unstamped, unknownToken} {
		c.add(refusedName, refusalKey.String(reason), 0)
	}
	return c
}

func (c *counts) add(name string, attr attribute.KeyValue, n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := series{name, attr}
	c.values[s] += n
	if name == leadingName && c.values[s] == 0 {
		delete(c.values, s) // there may be many keys over time
	}
}

func (c *counts) all() map[series]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.values)
}
