//go:build unix

// Package childproc lets a test play with processes: it starts the test's own
// binary again in a role, speaks with it in lines, and stops, continues or
// kills it.
package childproc

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// roleVar names the role in the child's environment.
const roleVar = "PGADVISORY_TEST_ROLE"

// replyLimit bounds each wait for a child.
const replyLimit = time.Minute

// Role is what a child does instead of the tests. It reads requests from in,
// a line each, and ends at its end; so does every child whose parent ends.
type Role func(ctx context.Context, in *bufio.Scanner, out io.Writer) error

// Main plays the role that this process was started for, if it was started for
// one, and exits then. TestMain calls it first.
func Main(roles map[string]Role) {
	name := os.Getenv(roleVar)
	if name == "" {
		return
	}
	role, ok := roles[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "childproc: no role %q\n", name)
		os.Exit(2)
	}
	if err := role(context.Background(), bufio.NewScanner(os.Stdin), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Command is this binary in a role, with additions to its environment, for what
// is not a test. It is not started.
func Command(role string, env ...string) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(append(os.Environ(), roleVar+"="+role), env...)
	cmd.Stderr = os.Stderr
	return cmd, nil
}

// Child is a process in a role. It is killed at the end of the test.
type Child struct {
	t     *testing.T
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

// Start starts this binary in a role, with additions to its environment.
func Start(t *testing.T, role string, env ...string) *Child {
	t.Helper()
	cmd, err := Command(role, env...)
	if err != nil {
		t.Fatal(err)
	}
	c := &Child{t: t, cmd: cmd, lines: make(chan string)}
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// Ends at the end of the child's output, which Kill brings about and waits
	// for, or when the test no longer listens.
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case c.lines <- s.Text():
			case <-t.Context().Done():
			}
		}
	}()
	t.Cleanup(c.Kill)
	return c
}

// Line returns the next line that the child prints.
func (c *Child) Line() string {
	c.t.Helper()
	select {
	case line, ok := <-c.lines:
		if !ok {
			c.t.Fatal("the child has ended")
		}
		return line
	case <-time.After(replyLimit):
		c.t.Fatal("the child says nothing")
		return ""
	}
}

// Ask sends a request and returns the child's answer.
func (c *Child) Ask(request string) string {
	c.t.Helper()
	c.Send(request)
	return c.Line()
}

// Send sends a request.
func (c *Child) Send(request string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.in, request); err != nil {
		c.t.Fatal(err)
	}
}

// Stop freezes the process and returns when it is frozen.
func (c *Child) Stop() {
	c.t.Helper()
	c.signal(syscall.SIGSTOP)
	deadline := time.After(replyLimit)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !c.isStopped() {
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatal("the child does not stop")
		}
	}
}

// Continue lets a stopped process go on.
func (c *Child) Continue() {
	c.t.Helper()
	c.signal(syscall.SIGCONT)
}

// Kill ends the process, stopped or not, without a chance to clean up.
func (c *Child) Kill() {
	_ = c.cmd.Process.Kill() // it may have ended
	for range c.lines {      // until the goroutine that reads them has ended
	}
	_ = c.cmd.Wait() // says that it was killed
}

func (c *Child) signal(s syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		c.t.Fatal(err)
	}
}

// isStopped asks ps, which every unix has.
func (c *Child) isStopped() bool {
	c.t.Helper()
	out, err := exec.Command("ps", "-o", "state=", "-p", fmt.Sprint(c.cmd.Process.Pid)).Output()
	if err != nil {
		c.t.Fatal(err)
	}
	return strings.HasPrefix(strings.TrimSpace(string(out)), "T")
}
