package doctor

import (
	"fmt"
	"io"
	"strings"
)

// Level is how bad a finding is.
type Level string

const (
	// OK is what is as it should be.
	OK Level = "ok"
	// Note is what is worth knowing, and breaks nothing by itself.
	Note Level = "note"
	// Problem is what breaks locks or fencing.
	Problem Level = "problem"
)

// Finding is one thing that was looked at.
type Finding struct {
	Level Level  `json:"level"`
	What  string `json:"what"`
	Fix   string `json:"fix,omitempty"` // of everything but OK
}

// Report is all that was found, in the order in which it was looked at.
type Report []Finding

func (r *Report) ok(format string, args ...any) {
	*r = append(*r, Finding{Level: OK, What: fmt.Sprintf(format, args...)})
}

func (r *Report) note(fix, format string, args ...any) {
	*r = append(*r, Finding{Level: Note, What: fmt.Sprintf(format, args...), Fix: fix})
}

func (r *Report) problem(fix, format string, args ...any) {
	*r = append(*r, Finding{Level: Problem, What: fmt.Sprintf(format, args...), Fix: fix})
}

// OK reports whether there is no problem.
func (r Report) OK() bool {
	for _, f := range r {
		if f.Level == Problem {
			return false
		}
	}
	return true
}

// Print writes a line for each finding, and one for its fix.
func (r Report) Print(w io.Writer) error {
	for _, f := range r {
		if _, err := fmt.Fprintf(w, "%-8s %s\n", f.Level, indented(f.What)); err != nil {
			return err
		}
		if f.Fix == "" {
			continue
		}
		if _, err := fmt.Fprintf(w, "%-8s fix: %s\n", "", indented(f.Fix)); err != nil {
			return err
		}
	}
	return nil
}

func indented(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", 9))
}
