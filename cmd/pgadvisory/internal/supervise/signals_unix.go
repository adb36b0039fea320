//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Signals are those that this process gets, as long as it listens.
type Signals struct {
	C chan os.Signal
}

// terminating are the signals by which somebody wants this process to end.
var terminating = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// forwarded are, besides these, the signals that the command gets.
var forwarded = []os.Signal{syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT}

// Listen takes the signals that want this process to end, instead of ending by
// them. Those that it was started to ignore stay ignored, for the command too.
func Listen() *Signals {
	s := &Signals{C: make(chan os.Signal, 64)}
	Notify(s.C, terminating...)
	// A reader of stderr that has gone shall not end this process, and with it
	// the command. To the command SIGPIPE is what it was.
	Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return s
}

// Stop ends it: signals do again what they did.
func (s *Signals) Stop() { signal.Stop(s.C) }

// Number is a signal's number.
func Number(sig os.Signal) int {
	n, _ := sig.(syscall.Signal)
	return int(n)
}

// Name is a signal's name, as in SIGTERM.
func Name(sig os.Signal) string {
	if n, ok := sig.(syscall.Signal); ok && unix.SignalName(n) != "" {
		return unix.SignalName(n)
	}
	return sig.String()
}

// Raise ends this process by SIGINT, and with it its process group if that is to
// be. It returns if SIGINT is ignored.
func Raise(i Interrupt) {
	pid := os.Getpid()
	switch i {
	case NoInterrupt:
		return
	case InterruptGroup:
		pid = 0
	case InterruptSelf:
	}
	signal.Reset(syscall.SIGINT)
	if syscall.Kill(pid, syscall.SIGINT) == nil {
		<-time.After(raiseLimit) // another thread may be the one that gets it
	}
}

// raiseLimit bounds the wait for the end.
const raiseLimit = 100 * time.Millisecond

// forward sends on what this process was sent. Signals that a terminal sends to
// a whole group go to the group; others to the command alone, because those who
// don't know them would end.
func (r *run) forward(sig os.Signal) {
	n, ok := sig.(syscall.Signal)
	switch {
	case !ok:
	case n == syscall.SIGUSR1 || n == syscall.SIGUSR2:
		if !r.ended {
			_ = syscall.Kill(r.child, n)
		}
	default:
		if n == syscall.SIGINT {
			r.interrupted = true
		}
		r.signalGroup(n)
		if slices.Contains(terminating, sig) {
			r.result.Asked = r.result.Asked || n != syscall.SIGHUP
			r.tellRefused()
		}
	}
}

// signalGroup sends a signal to all in the group. The watchdog ignores it, or
// goes with the others. Its process leads the group until it is reaped, so that
// the number can't be another's.
func (r *run) signalGroup(n syscall.Signal) { _ = syscall.Kill(-r.group.id, n) }
