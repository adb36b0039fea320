//go:build unix

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// ANSI colours.
const (
	plain   = ""
	red     = "\x1b[1;31m"
	green   = "\x1b[32m"
	yellow  = "\x1b[33m"
	blue    = "\x1b[34m"
	magenta = "\x1b[35m"
	cyan    = "\x1b[36m"
	faint   = "\x1b[2m"
	reset   = "\x1b[0m"
)

// textWidth is the width of the column before the token.
const textWidth = 62

// timeline prints what happens, one line each: time, who, what and the token.
// It is for one goroutine.
type timeline struct {
	out    *os.File
	broken context.CancelCauseFunc // called when out can't be written to
	start  time.Time
	colour bool
}

func newTimeline(out *os.File, broken context.CancelCauseFunc) *timeline {
	info, err := out.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0
	return &timeline{
		out: out, broken: broken, start: time.Now(),
		colour: terminal && os.Getenv("NO_COLOR") == "",
	}
}

// Main prints what the main process does.
func (t *timeline) Main(format string, args ...any) {
	t.line("main", plain, 0, fmt.Sprintf(format, args...))
}

// Replica prints what a replica reports.
func (t *timeline) Replica(r report) {
	text := r.describe()
	if text == "" {
		return
	}
	var colour string
	switch r.Kind {
	case holds:
		colour = green
	case refused, failed:
		colour = red
	case lost:
		colour = yellow
	default:
		colour = plain
	}
	t.line(r.from.name, colour, r.Token, text)
}

func (t *timeline) line(who, colour string, token fencing.Token, text string) {
	// Padded before it is coloured: the colours have no width.
	if token > 0 {
		text = fmt.Sprintf("%-*s", textWidth, text)
	}
	line := fmt.Sprintf("%s  %s  %s",
		t.paint(faint, fmt.Sprintf("%6.2fs", time.Since(t.start).Seconds())),
		t.paint(voice(who), fmt.Sprintf("%-9s", who)),
		t.paint(colour, text))
	if token > 0 {
		line += fmt.Sprintf("  token %d", token)
	}
	t.printf("%s\n", line)
}

// Verdict prints the checks and returns an error if one of them fails.
func (t *timeline) Verdict(checks []check) error {
	t.printf("\n")
	wrong := 0
	for _, c := range checks {
		if c.err != nil {
			wrong++
			t.printf("%s  %s: %v\n", t.paint(red, "FAILED"), c.claim, c.err)
			continue
		}
		t.printf("%s  %s\n", t.paint(green, "ok    "), c.claim)
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d checks failed", wrong, len(checks))
	}
	t.printf("\nAll %d checks passed, after %.1f s.\n", len(checks), time.Since(t.start).Seconds())
	return nil
}

func (t *timeline) printf(format string, args ...any) {
	if _, err := fmt.Fprintf(t.out, format, args...); err != nil {
		t.broken(fmt.Errorf("print the timeline: %w", err))
	}
}

func (t *timeline) paint(colour, text string) string {
	if !t.colour || colour == plain {
		return text
	}
	return colour + text + reset
}

// voice is the colour of a name.
func voice(who string) string {
	switch who {
	case "replica-1":
		return cyan
	case "replica-2":
		return magenta
	case "replica-3":
		return blue
	default:
		return plain
	}
}
