package lockview

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// label is what a lock is.
type label struct {
	name  string
	slot  int // of a semaphore, from 1; 0 for a lock
	limit int // of a semaphore
}

// limitMask has the bits in which the lock that announces a semaphore's limit has
// the limit. The others are those of the number of Name("semaphore:" + name).
const limitMask = 1<<20 - 1

// NumberOf is the number of the lock of a name.
func NumberOf(name string) int64 {
	n, _ := numberOf(advisory.Name(name))
	return n
}

// numberOf is a key's number, if it is of one bigint.
func numberOf(key advisory.Key) (int64, bool) {
	text, isBigint := strings.CutSuffix(key.SQL(), "'::bigint")
	n, err := strconv.ParseInt(strings.TrimPrefix(text, "'"), 10, 64)
	return n, isBigint && err == nil
}

// labelsOf finds out what the locks are, by number.
func labelsOf(all []advisory.Status, names []string) map[int64]label {
	numbers := make(map[int64]bool)
	for _, s := range all {
		if n, ok := numberOf(s.Key); ok {
			numbers[n] = true
		}
	}
	labels := make(map[int64]label)
	try := func(name string) {
		if n := NumberOf(name); numbers[n] {
			labels[n] = label{name: name}
		}
		semaphore := NumberOf("semaphore:" + name)
		for n := range numbers {
			limit := int(n & limitMask)
			if n&^limitMask != semaphore&^limitMask || limit < 1 || limit > advisory.MaxSlots {
				continue
			}
			labels[n] = label{name: name, limit: limit}
			for i := range limit {
				if slot := NumberOf(fmt.Sprintf("semaphore:%s:%d", name, i)); numbers[slot] {
					labels[slot] = label{name: name, slot: i + 1, limit: limit}
				}
			}
		}
	}
	tried := make(map[string]bool)
	for _, name := range append(candidates(all), names...) {
		if !tried[name] {
			tried[name] = true
			try(name)
		}
	}
	return labels
}

// candidates are the names that sessions may mean by their application_name.
func candidates(all []advisory.Status) []string {
	var names []string
	seen := make(map[string]bool)
	for _, s := range all {
		t, ok := toldBy(s.Application)
		if !ok || seen[t.rest] {
			continue
		}
		seen[t.rest] = true
		names = append(names, t.candidates()...)
	}
	return names
}
