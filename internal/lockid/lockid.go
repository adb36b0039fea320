// Package lockid says which advisory lock is meant: its number, its mode, and its place
// in the order in which locks are taken.
package lockid

import (
	"cmp"
	"fmt"
	"slices"
)

// ID identifies a lock, however its key was made. IDs are comparable.
type ID struct {
	Space  Space
	Number int64 // of a pair: the class in the high half, the object in the low one
}

// Space tells apart locks of the same number. It is as wide as the number, so that a map
// hashes an ID in one go.
type Space int64

const (
	// BigInt is the space of pg_advisory_lock(bigint).
	BigInt Space = iota
	// Pairs is the space of pg_advisory_lock(int, int).
	Pairs
	// Semaphores is for the queues of semaphores. The server has no such locks: it has
	// a semaphore's slots and its announcement.
	Semaphores
	// Calls is for the queues of single calls. The server has no such locks.
	Calls
)

// OfNumber is the lock of one bigint.
func OfNumber(number int64) ID { return ID{Number: number} }

// OfPair is the lock of two ints.
func OfPair(class, object int32) ID {
	return ID{Space: Pairs, Number: int64(class)<<32 | int64(uint32(object))}
}

// IsPair reports whether the lock is one of two ints.
func (id ID) IsPair() bool { return id.Space == Pairs }

// Class is the first int of a pair.
func (id ID) Class() int32 { return int32(id.Number >> 32) }

// Object is the second int of a pair.
func (id ID) Object() int32 { return int32(id.Number) }

// SQL is the argument text of the server's lock functions.
func (id ID) SQL() string {
	if id.IsPair() {
		return fmt.Sprintf("'%d'::int, '%d'::int", id.Class(), id.Object())
	}
	return fmt.Sprintf("'%d'::bigint", id.Number)
}

// Compare orders locks as all who take several do: the locks of one bigint come before
// those of two ints, and each space goes by number. Sessions that lock in one order can't
// deadlock with each other.
func Compare(a, b ID) int {
	return cmp.Or(cmp.Compare(a.Space, b.Space), cmp.Compare(a.Number, b.Number))
}

// Target is a lock in one of its two modes.
type Target struct {
	ID
	Shared bool
}

// Sort sorts targets in the order of [Compare], and drops repeated ones.
func Sort(targets []Target) []Target {
	slices.SortFunc(targets, func(a, b Target) int { return Compare(a.ID, b.ID) })
	return slices.Compact(targets)
}
