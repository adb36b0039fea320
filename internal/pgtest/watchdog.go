package pgtest

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// The scripts run by a watchdog, see [startWatchdog].
var (
	//go:embed serve.sh
	serveScript string
	//go:embed guard.sh
	guardScript string
	//go:embed remove.sh
	removeScript string
	//go:embed pool.sh
	poolScript string
)

// watchdogLimit bounds the wait for a watchdog to end. It exceeds the time that
// the scripts themselves allow a server before they kill it.
const watchdogLimit = time.Minute

// errWatchdogStuck is returned by [watchdog.Close] when the shell is still
// there after [watchdogLimit].
var errWatchdogStuck = errors.New("watchdog still runs")

// A watchdog is a shell that outlives this process by as long as it takes to
// end a server and remove its files. Nothing inside the process could do that:
// no deferred function runs after SIGKILL or os.Exit.
type watchdog struct {
	pipe *os.File
	done chan struct{}

	// Written before done is closed.
	output bytes.Buffer
	err    error
}

// startWatchdog runs script with args in a session of its own, out of reach of
// the signals that a terminal or a test runner sends to this process's group.
// The script's standard input ends when [watchdog.Close] is called or this
// process ends. A non-nil account is the user it runs as.
func startWatchdog(script string, as *account, args ...string) (*watchdog, error) {
	attr, err := newSession(as)
	if err != nil {
		return nil, err
	}
	// Both ends are close-on-exec, so that no other child of this process can
	// keep the pipe open beyond the process's own end.
	r, pipe, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	w := &watchdog{pipe: pipe, done: make(chan struct{})}
	cmd := exec.Command("/bin/sh", append([]string{"-c", script, "pgtest"}, args...)...)
	cmd.Dir = "/" // the working directory may be closed to the account
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	cmd.Stdin = r
	cmd.Stderr = &w.output
	cmd.SysProcAttr = attr
	err = cmd.Start()
	_ = r.Close() // the shell has its own
	if err != nil {
		_ = pipe.Close()
		return nil, err
	}
	// Ends with the shell; Close and the readers of done wait for it.
	go func() {
		w.err = cmd.Wait()
		close(w.done)
	}()
	return w, nil
}

// Tell writes one line to the script's standard input.
func (w *watchdog) Tell(line string) error {
	_, err := io.WriteString(w.pipe, line+"\n")
	return err
}

// Done is closed when the shell has ended, and with it the server.
func (w *watchdog) Done() <-chan struct{} { return w.done }

// EndsWithin waits for the end of the shell, and reports false if it does not come
// in time.
func (w *watchdog) EndsWithin(limit time.Duration) bool {
	select {
	case <-w.done:
		return true
	case <-time.After(limit):
		return false
	}
}

// Cause says why a watchdog ended that was not closed. Only valid after Done.
func (w *watchdog) Cause() error {
	if text := oneLine(w.output.String()); text != "" {
		return errors.New(text)
	}
	return fmt.Errorf("server ended without a message: %w", w.err)
}

// Close ends the script's standard input and waits until the shell has done its
// work. It returns an error if the server had ended before it was asked to, or
// if the shell does not end in time.
func (w *watchdog) Close() error {
	if err := w.pipe.Close(); err != nil {
		return err
	}
	select {
	case <-w.done:
		if w.err != nil {
			return fmt.Errorf("it ended on its own: %w", w.Cause())
		}
		return nil
	case <-time.After(watchdogLimit):
		return errWatchdogStuck
	}
}

// oneLine makes a text that may span lines fit for a place in a line.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
