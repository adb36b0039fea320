//go:build unix

package supervise

import (
	"fmt"
	"syscall"
)

// member is a process in the group.
type member struct {
	pid  int
	name string
}

// refuses reports whether this process may not signal another. That is so when
// it has changed its user ids, as sudo does, and this process is not root's.
func refuses(pid int) bool { return syscall.Kill(pid, 0) == syscall.EPERM }

func (m member) String() string { return fmt.Sprintf("process %d (%s)", m.pid, m.name) }
