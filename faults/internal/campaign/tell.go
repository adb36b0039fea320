//go:build unix

package campaign

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/checker"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// shown is how many violations are printed with what was around them.
const shown = 3

// announce prints a line for a segment.
func (c *campaign) announce(number, rounds int, result checker.Result, took time.Duration) {
	s := result.Stats
	verdict := "ok"
	if n := len(result.Violations); n > 0 {
		verdict = fmt.Sprintf("%d VIOLATIONS", n)
	}
	say(c.out, "segment %d: %d rounds in %s, %d grants, %d writes, %d refused as stale, %d takeovers, worst notice %s, worst recovery %s: %s\n",
		number, rounds, took.Round(100*time.Millisecond), s.Grants, s.Writes[history.OK], s.Writes[history.Stale],
		s.Takeovers, s.WorstNotice.Round(time.Millisecond), s.WorstRecovery.Round(time.Millisecond), verdict)
}

// say prints. A run goes on if nobody reads about it.
func say(out io.Writer, format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) }

// show prints violations, and how to have them again.
func (c *campaign) show(number int, path string, events []history.Event, violations []checker.Violation) error {
	if err := showAll(c.out, events, violations); err != nil {
		return err
	}
	say(c.out, "\nThe history is in %s. Run it again with:\n  go run ./faults -seed %d -segment %d -rounds %d -workers %d -keys %d -leased %d%s\n",
		path, c.Seed, number, c.Rounds, c.Workers, c.Keys, c.Leased, c.Args)
	return nil
}

// showAll prints each of the first violations with the time around it.
func showAll(out io.Writer, events []history.Event, violations []checker.Violation) error {
	for i, v := range violations {
		if i == shown {
			say(out, "… and %d more\n", len(violations)-shown)
			break
		}
		say(out, "\nVIOLATION %s\n", v)
		if err := checker.Timeline(out, events, v); err != nil {
			return err
		}
	}
	return nil
}

// Judge checks a history again that a run has kept, and prints what it finds. It
// reports whether that is nothing.
func Judge(path string, out io.Writer) (isGood bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }() // it was only read
	events, err := history.Read(file)
	if err != nil {
		return false, fmt.Errorf("%s: %w", path, err)
	}
	result := checker.Check(events, limits)
	say(out, "%d events, %d operations, %d violations\n", len(events), result.Stats.Operations(), len(result.Violations))
	return len(result.Violations) == 0, showAll(out, events, result.Violations)
}
