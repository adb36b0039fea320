//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
)

// errOrphaned is why a replica ends when the main process has.
var errOrphaned = errors.New("the main process has ended")

// link is a replica's connection to the main process: events go out, and
// each line that comes in is the permission to go on.
type link struct {
	out *json.Encoder
	in  chan struct{}
}

// newLink reads in until it ends, and then calls orphaned.
func newLink(in io.Reader, out io.Writer, orphaned context.CancelCauseFunc) *link {
	l := &link{out: json.NewEncoder(out), in: make(chan struct{}, 1)}
	// Ends when the main process closes the pipe or ends, at the latest with
	// this process; nobody waits for it.
	go func() {
		for lines := bufio.NewScanner(in); lines.Scan(); {
			l.in <- struct{}{}
		}
		orphaned(errOrphaned)
	}()
	return l
}

// Report tells the main process. If that has ended, SIGPIPE ends this process.
func (l *link) Report(e event) { _ = l.out.Encode(e) }

// Await returns when the main process says so.
func (l *link) Await(ctx context.Context) error {
	select {
	case <-l.in:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
