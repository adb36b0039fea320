package advisory

import (
	"fmt"
	"slices"
)

// tag identifies a lock on the server, however its Key was made.
type tag struct {
	space space
	id    int64 // as in Key
}

// space tells apart locks of the same number. It is as wide as that, so that a map
// of tags hashes each in one go.
type space int64

const (
	bigintSpace space = iota
	pairSpace
	// semaphoreSpace is for the lines of semaphores, which are no locks of their
	// own: the server's locks are its slots and its announcement.
	semaphoreSpace
)

func (k Key) tag() tag {
	if k.kind == pairKey {
		return tag{space: pairSpace, id: k.id}
	}
	return tag{id: k.id}
}

func (t tag) isPair() bool { return t.space == pairSpace }

func (t tag) class() int32  { return int32(t.id >> 32) }
func (t tag) object() int32 { return int32(t.id) }

// args are the arguments of the server's lock functions.
func (t tag) args() []any {
	if t.isPair() {
		return []any{t.class(), t.object()}
	}
	return []any{t.id}
}

func (t tag) placeholders() string {
	if t.isPair() {
		return "$1::int, $2::int"
	}
	return "$1::bigint"
}

func (t tag) literals() string {
	if t.isPair() {
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

// occupantsOf returns those who are to hold targets.
func occupantsOf(targets []target) []*occupant {
	occupants := make([]*occupant, len(targets))
	for i, t := range targets {
		occupants[i] = &occupant{shared: t.shared}
	}
	return occupants
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
