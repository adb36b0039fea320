//go:build unix

// Package history is what happened in a run: the operations of the workers, as
// they saw them, the faults, and what was in the tables at certain moments. It is
// kept as JSON, one event a line, so that a run can be judged again without it.
//
// All times are of one clock, which all processes of a machine share and which
// nobody sets: [Now]. An operation has an event for its begin and one for its
// end, written at once each: of a process that was killed the begins remain, and
// what became of these operations is unknown.
package history
