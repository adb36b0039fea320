//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"
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
// them. Those that it was started to ignore, as by nohup, stay ignored; the
// command inherits that.
func Listen() *Signals {
	s := &Signals{C: make(chan os.Signal, 64)}
	s.listen(terminating)
	return s
}

func (s *Signals) listen(signals []os.Signal) {
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(s.C, sig)
		}
	}
}

// Stop ends it: signals do again what they did.
func (s *Signals) Stop() { signal.Stop(s.C) }

// Number is a signal's number.
func Number(sig os.Signal) int {
	n, _ := sig.(syscall.Signal)
	return int(n)
}

// Repeat sends a signal of the terminal's to whom the terminal would have sent
// it, had the command not had the foreground: this process, which it ends, and
// the script that has started it.
func Repeat(sig os.Signal) {
	if n, ok := sig.(syscall.Signal); ok && (n == syscall.SIGINT || n == syscall.SIGQUIT) {
		signal.Reset(n)
		_ = syscall.Kill(0, n)
	}
}

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
		r.signalGroup(n)
	}
}

// signalGroup sends a signal to all in the group. The watchdog ignores it, or
// goes with the others. Its process leads the group until it is reaped, so that
// the number can't be another's.
func (r *run) signalGroup(n syscall.Signal) { _ = syscall.Kill(-r.group.id, n) }
