//go:build unix && !linux

package supervise

import (
	"os"
	"syscall"
)

func selfPath() (string, error) { return os.Executable() }

// dieWithParent does nothing: there is the watchdog.
func dieWithParent(*syscall.SysProcAttr) {}

func nameProcess(string) {}
