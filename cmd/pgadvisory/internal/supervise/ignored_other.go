//go:build unix && !linux

package supervise

import "syscall"

// ignoredAtStart returns nothing: the runtime of Go keeps only SIGHUP and SIGINT
// ignored here, and has replaced the others before any code of a program runs.
func ignoredAtStart() []syscall.Signal { return nil }
