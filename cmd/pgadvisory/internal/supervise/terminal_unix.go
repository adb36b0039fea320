//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is the one that controls this process, if there is one. The command
// is in a group of its own, and a terminal has one group in its foreground: it
// stops others that read from it, and sends Ctrl-C to that one only.
//
// The command gets the foreground when it asks for it, which shows by its being
// stopped with SIGTTIN or SIGTTOU. Until then this process's group keeps it, so
// that what stands beside it in a pipeline, a pager say, has it, and Ctrl-C
// comes here and is forwarded.
type terminal struct {
	lent bool
	cont chan os.Signal
}

func (t *terminal) begin() {
	// From now on, not before the command was started: it would inherit that.
	// It is what a background process needs that takes the foreground back.
	signal.Ignore(syscall.SIGTTOU)
	t.cont = make(chan os.Signal, 1)
	signal.Notify(t.cont, syscall.SIGCONT)
}

// end takes the foreground back from a group that has it.
func (t *terminal) end(group int) {
	signal.Stop(t.cont)
	t.move(group, syscall.Getpgrp())
}

func hasTerminal() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	return err == nil && tty.Close() == nil
}

// move gives the foreground from one group to another and reports whether the
// one had it.
func (t *terminal) move(from, to int) bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return false // there is none
	}
	defer func() { _ = tty.Close() }()
	foreground, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	if err != nil || foreground != from {
		return false
	}
	return unix.IoctlSetPointerInt(int(tty.Fd()), unix.TIOCSPGRP, to) == nil
}

// stopped does what is to be done when the command was stopped.
func (r *run) stopped(by syscall.Signal) {
	switch {
	case r.ending:
		r.signalGroup(syscall.SIGCONT) // it is to end
	case by == syscall.SIGTTIN || by == syscall.SIGTTOU:
		if r.lend() {
			r.signalGroup(syscall.SIGCONT)
			return
		}
		r.suspend()
	case by == syscall.SIGTSTP:
		r.suspend()
	default:
		// By SIGSTOP: whoever sent it sends SIGCONT as well.
	}
}

// lend gives the command the foreground, if this process has it to give.
func (r *run) lend() bool {
	if r.terminal.move(syscall.Getpgrp(), r.group.id) {
		r.terminal.lent = true
		return true
	}
	return false
}

// suspend stops this process with the command, so that the shell takes over, and
// goes on when the shell says so.
func (r *run) suspend() {
	if !hasTerminal() {
		return // nobody would continue this process
	}
	r.terminal.move(r.group.id, syscall.Getpgrp())
	select {
	case <-r.terminal.cont: // of earlier
	default:
	}
	if syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil {
		// The stop takes hold at any moment from now. The time is that of the
		// stopped, too.
		select {
		case <-r.terminal.cont:
		case <-time.After(time.Second):
		}
	}
	if r.terminal.lent {
		r.lend()
	}
	r.signalGroup(syscall.SIGCONT)
}
