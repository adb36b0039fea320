//go:build unix && !linux

package supervise

import "syscall"

// members can't tell here.
func members(int, int) (list []member, ok bool) { return nil, false }

func (m member) kill(int) { _ = syscall.Kill(m.pid, syscall.SIGKILL) }
