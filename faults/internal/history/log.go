//go:build unix

package history

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"sync"
)

// Log collects the events of a run while it goes on. It is safe for concurrent
// use.
type Log struct {
	out io.Writer // gets a line for each

	// mu guards the fields below; nothing but the writing of a line blocks under
	// it.
	mu      sync.Mutex
	events  []Event
	holds   map[string]Event // what is held for all that is known, by key
	changed chan struct{}    // closed, and made anew, at each event
	err     error
}

// NewLog returns a Log that also writes to out.
func NewLog(out io.Writer) *Log {
	return &Log{out: out, holds: make(map[string]Event), changed: make(chan struct{})}
}

// Add adds an event.
func (l *Log) Add(e Event) {
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.out.Write(append(line, '\n'))
	}
	if l.err == nil && err != nil {
		l.err = fmt.Errorf("write the history: %w", err)
	}
	l.events = append(l.events, e)
	switch {
	case e.Kind == LockEnd && e.Outcome == OK:
		l.holds[e.Key] = e
	case e.Kind == Done || e.Kind == Unlock:
		if l.holds[e.Key].Op == e.Op {
			delete(l.holds, e.Key)
		}
	case e.Kind == Death:
		maps.DeleteFunc(l.holds, func(_ string, hold Event) bool { return hold.Worker == e.Worker })
	}
	close(l.changed)
	l.changed = make(chan struct{})
}

// Holder is the grant of the key's holder, as far as is known.
func (l *Log) Holder(key string) (Event, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.holds[key]
	return e, ok
}

// Len is how many events there are.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.events)
}

// Events returns all, in the order of arrival, and what went wrong with writing
// them.
func (l *Log) Events() ([]Event, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.events[:len(l.events):len(l.events)], l.err
}

// Await waits until enough says so of an event; it is asked about each one from
// the index from on, in order. It reports false when ctx has ended first.
func (l *Log) Await(ctx context.Context, from int, enough func(Event) bool) bool {
	for {
		l.mu.Lock()
		events, changed := l.events, l.changed
		l.mu.Unlock()
		for ; from < len(events); from++ {
			if enough(events[from]) {
				return true
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// Read reads a history that a Log has written.
func Read(in io.Reader) ([]Event, error) {
	var events []Event
	decoder := json.NewDecoder(bufio.NewReader(in))
	for {
		var e Event
		switch err := decoder.Decode(&e); err {
		case nil:
			events = append(events, e)
		case io.EOF:
			return events, nil
		default:
			return nil, fmt.Errorf("event %d: %w", len(events)+1, err)
		}
	}
}
