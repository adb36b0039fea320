//go:build unix

package main

import (
	"fmt"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// kind is what happened at a replica.
type kind string

const (
	asks      kind = "asks"
	holds     kind = "holds"
	half      kind = "half" // waits for a line on standard input now
	published kind = "published"
	refused   kind = "refused"
	lost      kind = "lost"
	done      kind = "done"
	failed    kind = "failed"
	exited    kind = "exited" // added by the main process
)

// event is a line of JSON on a replica's standard output.
type event struct {
	Kind    kind          `json:"kind"`
	Token   fencing.Token `json:"token,omitempty"`
	Backend uint32        `json:"backend,omitempty"` // holds: the session's process id
	Day     string        `json:"day,omitempty"`
	Rows    int           `json:"rows,omitempty"`
	Stale   fencing.Token `json:"stale,omitempty"`   // refused: the token that the write carried
	Current fencing.Token `json:"current,omitempty"` // refused: the one that superseded it
	Text    string        `json:"text,omitempty"`
}

// describe says it for the timeline. It is empty for what a reader of the
// timeline need not know.
func (e event) describe() string {
	switch e.Kind {
	case asks:
		return "asks for the lock"
	case holds:
		return "holds the lock"
	case published:
		return fmt.Sprintf("published %s, %d earthquakes", e.Day, e.Rows)
	case refused:
		return fmt.Sprintf("REFUSED to publish %s: token %d is stale, %d is current", e.Day, e.Stale, e.Current)
	case lost:
		return fmt.Sprintf("learns that its lock is lost (%s)", e.Text)
	case done:
		return e.Text
	case failed:
		return "failed: " + e.Text
	case half, exited:
		return ""
	default:
		return fmt.Sprintf("unknown event %q", e.Kind)
	}
}
