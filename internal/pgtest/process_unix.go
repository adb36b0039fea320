//go:build unix

package pgtest

import "syscall"

// newSession has a command run in a session of its own, as the given account
// unless that is nil. The error is for other systems.
func newSession(as *account) (*syscall.SysProcAttr, error) {
	attr := &syscall.SysProcAttr{Setsid: true}
	if as != nil {
		attr.Credential = &syscall.Credential{Uid: as.uid, Gid: as.gid}
	}
	return attr, nil
}
