package main

import "syscall"

// replicaAttr starts a replica in a process group of its own, out of reach of
// the terminal's Ctrl-C, which is for the main process to handle. If the main
// process is killed, the kernel kills the replica, even a stopped one.
func replicaAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
