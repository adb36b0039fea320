package advisory

import (
	"fmt"
	"slices"
)

// tag identifies a lock on the server, however its Key was made.
type tag struct {
	pair bool
	id   int64 // as in Key

	// semaphore marks the line of a semaphore, which is no lock of its own:
	// the server's locks are its slots and its announcement.
	semaphore bool
}

func (k Key) tag() tag { return tag{pair: k.kind == pairKey, id: k.id} }

func (t tag) class() int32  { return int32(t.id >> 32) }
func (t tag) object() int32 { return int32(t.id) }

// args are the arguments of the server's lock functions.
func (t tag) args() []any {
	if t.pair {
		return []any{t.class(), t.object()}
	}
	return []any{t.id}
}

func (t tag) placeholders() string {
	if t.pair {
		return "$1::int, $2::int"
	}
	return "$1::bigint"
}

func (t tag) literals() string {
	if t.pair {
		return fmt.Sprintf("'%d'::int, '%d'::int", t.class(), t.object())
	}
	return fmt.Sprintf("'%d'::bigint", t.id)
}

// target is a lock in one of its two modes.
type target struct {
	tag
	shared bool
}

// suffix ends the names of the server's functions for the mode.
func (t target) suffix() string {
	if t.shared {
		return "_shared"
	}
	return ""
}

// targetsOf returns what to lock for keys, each lock once, in the order in which
// all who lock several do it: those of one bigint before those of two ints,
// each by its number. Who locks in one order can't deadlock with another.
func targetsOf(keys []Key) []target {
	targets := make([]target, 0, len(keys))
	for _, k := range keys {
		targets = append(targets, target{tag: k.tag()})
	}
	slices.SortFunc(targets, func(a, b target) int { return compareTags(a.tag, b.tag) })
	return slices.Compact(targets)
}
