//go:build unix

package checker

import "github.com/pgadvisory/pgadvisory/faults/internal/history"

// checkLeft collects what the workers and the controller found at the end, and
// what they should have said and did not.
func (j *judge) checkLeft() {
	born, ended := make(map[int]int), make(map[int]bool)
	for _, e := range j.others {
		switch e.Kind {
		case history.Born:
			born[e.Worker] = e.Life
		case history.Left:
			j.blame(Left, e.Key, e.Time, "left behind: %s", e.Err)
		case history.Stuck:
			j.blame(Stuck, e.Key, e.Time, "key %s: %s", e.Key, e.Err)
		case history.Rest:
			if e.Outcome != history.OK {
				j.blame(Left, "", e.Time, "worker %d: connections of the pool are in use though nobody works", e.Worker)
			}
		case history.Ended:
			ended[e.Worker] = true
			if e.Outcome != history.OK {
				j.blame(Left, "", e.Time, "worker %d: at its end: %s", e.Worker, e.Err)
			}
		default:
			// nothing that could be left
		}
	}
	for worker := range born {
		if !ended[worker] {
			j.blame(Left, "", j.last, "worker %d has not ended", worker)
		}
	}
}
