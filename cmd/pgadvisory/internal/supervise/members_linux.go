package supervise

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// members returns the processes of a group but for one. Zombies do not count:
// they only wait to be reaped, by a parent that may never do so. ok is false
// where it can't tell, because /proc is missing or shows another PID namespace.
func members(group, except int) (list []member, ok bool) {
	self, err := os.Readlink("/proc/self")
	if err != nil || self != strconv.Itoa(os.Getpid()) {
		return nil, false
	}
	proc, err := os.Open("/proc")
	if err != nil {
		return nil, false
	}
	defer func() { _ = proc.Close() }()
	names, err := proc.Readdirnames(-1)
	if err != nil {
		return nil, false
	}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == except {
			continue
		}
		if command, isIn := look(pid, group); isIn {
			list = append(list, member{pid: pid, name: command})
		}
	}
	return list, true
}

// look reports whether a process is in a group and no zombie, and its name; see
// proc_pid_stat(5).
func look(pid, group int) (name string, isIn bool) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if err != nil || open < 0 || end < open {
		return "", false
	}
	rest := bytes.Fields(stat[end+1:]) // state, ppid, pgrp, ...
	if len(rest) < 3 || string(rest[2]) != strconv.Itoa(group) {
		return "", false
	}
	switch rest[0][0] {
	case 'Z', 'X', 'x':
		return "", false
	}
	return string(stat[open+1 : end]), true
}

// kill sends SIGKILL to a member. It holds on to the process while it looks
// again, so that a process id that was given to another harms nobody.
func (m member) kill(group int) {
	process, err := os.FindProcess(m.pid)
	if err != nil {
		return
	}
	defer func() { _ = process.Release() }()
	if _, isIn := look(m.pid, group); isIn {
		_ = process.Kill()
	}
}
