package supervise

import (
	"os"
	"syscall"
)

// selfPath is this binary, even if its file was replaced meanwhile.
func selfPath() (string, error) { return "/proc/self/exe", nil }

// dieWithParent has the kernel kill the command when the thread that started it
// ends; [Group.Run] keeps to one thread.
func dieWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// nameProcess sets what ps and pkill see.
func nameProcess(name string) { _ = os.WriteFile("/proc/self/comm", []byte(name), 0) }
