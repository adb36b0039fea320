//go:build unix

package campaign

import (
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/checker"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// shown is how many violations are printed with what was around them.
const shown = 3

// announce prints a line for a segment.
func (c *campaign) announce(number, rounds int, result checker.Result, took time.Duration) {
	s := result.Stats
	fmt.Fprintf(c.out, "segment %d: %d rounds in %s, %d grants, %d writes, %d refused as stale, %d takeovers, worst notice %s: ",
		number, rounds, took.Round(100*time.Millisecond), s.Grants, s.Writes[history.OK], s.Writes[history.Stale],
		s.Takeovers, s.WorstNotice.Round(time.Millisecond))
	if n := len(result.Violations); n > 0 {
		fmt.Fprintf(c.out, "%d VIOLATIONS\n", n)
	} else {
		fmt.Fprintln(c.out, "ok")
	}
}

// show prints violations, each with the time around it.
func (c *campaign) show(number int, path string, events []history.Event, violations []checker.Violation) error {
	for i, v := range violations {
		if i == shown {
			fmt.Fprintf(c.out, "… and %d more\n", len(violations)-shown)
			break
		}
		fmt.Fprintf(c.out, "\nVIOLATION %s\n", v)
		if err := checker.Timeline(c.out, events, v); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(c.out, "\nThe history is in %s. Run it again with:\n  go run ./faults -seed %d -segment %d -rounds %d -workers %d -keys %d\n",
		path, c.Seed, number, c.Rounds, c.Workers, c.Options.Keys)
	return err
}
