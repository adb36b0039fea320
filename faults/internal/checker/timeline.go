//go:build unix

package checker

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// What a timeline has of the time around a violation.
const (
	timelineBefore = 1500 * time.Millisecond
	timelineAfter  = 300 * time.Millisecond
	timelineLines  = 60
)

// Timeline prints what happened around a violation: to its key, to the processes
// and to the servers. Reads are left out.
func Timeline(out io.Writer, events []history.Event, v Violation) error {
	var around []history.Event
	for _, e := range events {
		if e.Time >= v.At.Add(-timelineBefore) && e.Time <= v.At.Add(timelineAfter) && isNews(e, v.Key) {
			around = append(around, e)
		}
	}
	slices.SortStableFunc(around, func(a, b history.Event) int { return int(a.Time.Sub(b.Time)) })
	if at := slices.IndexFunc(around, func(e history.Event) bool { return e.Time > v.At }); at > timelineLines {
		around = around[at-timelineLines:]
	}
	for i, e := range around {
		if i == timelineLines+10 {
			break
		}
		if _, err := fmt.Fprintf(out, "%+9.1f ms  %s\n", float64(e.Time.Sub(v.At))/float64(time.Millisecond), line(e)); err != nil {
			return err
		}
	}
	return nil
}

func isNews(e history.Event, key string) bool {
	switch e.Kind {
	case history.ReadBegin, history.ReadEnd:
		return false
	case history.Fault, history.Healed, history.Promotion, history.Death, history.Stall:
		return true
	default:
		return key == "" || e.Key == "" || e.Key == key
	}
}

// line is an event for a human.
func line(e history.Event) string {
	who := "nemesis "
	if e.Kind != history.Fault && e.Kind != history.Promotion && e.Kind != history.Death && e.Worker > 0 {
		who = fmt.Sprintf("worker %d", e.Worker)
	}
	parts := []string{who, fmt.Sprintf("%-10s", e.Kind)}
	add := func(format string, value any, isThere bool) {
		if isThere {
			parts = append(parts, fmt.Sprintf(format, value))
		}
	}
	add("%s", e.How, e.How != "")
	add("key %s", e.Key, e.Key != "")
	add("op %s", e.Op, e.Op != "")
	add("of %s", e.Hold, e.Hold != "")
	add("token %d", e.Token, e.Token != 0)
	add("pid %d", e.PID, e.PID != 0)
	add("to worker %d", e.Worker, who == "nemesis " && e.Worker != 0)
	add("was %q", e.Was, e.Kind == history.Commit)
	add("for %s", e.Time.Sub(e.Since).Round(time.Millisecond), e.Since != 0)
	add("lost=%t", e.Lost, e.Kind == history.Done)
	add("%s", e.Outcome, e.Outcome != "")
	add("(%s)", e.Err, e.Err != "")
	if e.Content != nil {
		parts = append(parts, fmt.Sprintf("register %q, %d rows, mark %d", e.Content.Register, len(e.Content.Rows), e.Content.Mark))
	}
	return strings.Join(parts, " ")
}
