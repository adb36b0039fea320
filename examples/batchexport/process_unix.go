//go:build unix && !linux

package main

import "syscall"

// replicaAttr starts a replica in a process group of its own, out of reach of
// the terminal's Ctrl-C, which is for the main process to handle. If the main
// process is killed, a stopped replica gets SIGHUP and SIGCONT and ends: that
// is what POSIX has for a group that nobody is left to wake.
func replicaAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
