//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// needed are signals that a program in Go can't do without: the kernel's word of
// children, and what the runtime itself uses or turns into panics.
var needed = []syscall.Signal{
	syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPROF,
	syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGILL, syscall.SIGTRAP, syscall.SIGSYS,
}

// keepIgnored goes on ignoring what this process was started to ignore. So does
// each process that it starts.
var keepIgnored = sync.OnceFunc(func() {
	for _, sig := range ignoredAtStart() {
		if !slices.Contains(needed, sig) {
			signal.Ignore(sig)
		}
	}
})

// Notify is [signal.Notify] but for signals that this process was started to
// ignore, as by nohup.
func Notify(c chan<- os.Signal, signals ...os.Signal) {
	keepIgnored()
	for _, sig := range signals {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}
