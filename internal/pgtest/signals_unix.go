//go:build unix

package pgtest

import (
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

// stopping are the signals that a shell without job control, or one that is not
// interactive, ignores, and of which the Go runtime leaves the disposition alone.
var stopping = []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}

// handleIgnoredSignals takes the signals that this process inherited as ignored,
// from nohup for one, and does nothing with them. Nothing changes for this
// process, but what it starts has the defaults: exec keeps what is ignored and
// resets what is handled.
func handleIgnoredSignals() {
	for _, sig := range append([]syscall.Signal{syscall.SIGHUP, syscall.SIGINT}, stopping...) {
		if signal.Ignored(sig) || isInheritedIgnored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig) // never read: it is for good
		}
	}
}

// isInheritedIgnored asks Linux about a signal. Elsewhere it reports false.
func isInheritedIgnored(sig syscall.Signal) bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(status)) {
		if mask, found := strings.CutPrefix(line, "SigIgn:"); found {
			bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			return err == nil && bits&(1<<(sig-1)) != 0
		}
	}
	return false
}
