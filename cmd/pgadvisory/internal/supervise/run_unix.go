//go:build unix

package supervise

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

const (
	// pollInterval is how often it is looked who is left in the group.
	pollInterval = 5 * time.Millisecond
	// slowPollInterval is how often after a while.
	slowPollInterval = 100 * time.Millisecond
	// killLimit bounds the wait for those who got SIGKILL: the kernel may keep
	// one that waits for a disk or a network file system.
	killLimit = 5 * time.Second
)

// run is one command under way. Everything is done by the goroutine of
// [Group.Run], one after the other: it reaps, and it signals, so that no
// signal can go to a process id that was freed and given to another.
type run struct {
	group   *Group
	command Command
	signals <-chan os.Signal // by which somebody wants this process to end
	others  <-chan os.Signal
	child   int
	ended   bool // child was reaped
	status  syscall.WaitStatus

	terminal terminal
	ending   bool         // the group was told to end
	killed   bool         // the group got SIGKILL; the deadline is for giving up now
	deadline *time.Timer  // for SIGKILL, or for giving up; nil if there is none
	asked    bool         // the watchdog was asked to leave the group
	left     bool         // it has
	refusing map[int]bool // who was told of that this process may not signal them

	interrupted bool // this process got SIGINT
	result      Result
}

// Run runs a command in the group and returns when it has ended, and all that it
// left there. It forwards the signals that come meanwhile, and those that came
// before. When lost is closed first, it ends the group. An error means that the
// command was not started; code is as with [Find].
func (g *Group) Run(command Command, signals *Signals, lost <-chan struct{}) (result Result, code int, err error) {
	// What dies with its parent dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	if err := g.awaitReady(); err != nil {
		return Result{}, 71, err
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	others := make(chan os.Signal, 64)
	Notify(others, forwarded...)
	defer signal.Stop(others)

	r := &run{group: g, command: command, signals: signals.C, others: others}
	if code, err := r.start(); err != nil {
		return Result{}, code, err
	}
	r.terminal.begin()
	defer r.terminal.end(g.id)
	r.wait(children, lost)
	if r.ended {
		r.empty()
	}
	return r.result, 0, nil
}

func (r *run) start() (code int, err error) {
	attr := &syscall.SysProcAttr{Setpgid: true, Pgid: r.group.id}
	dieWithParent(attr)
	r.child, err = syscall.ForkExec(r.command.Path, r.command.Args, &syscall.ProcAttr{
		Env:   r.command.Env,
		Files: []uintptr{0, 1, 2},
		Sys:   attr,
	})
	switch err {
	case nil:
		return 0, nil
	case syscall.ENOENT:
		code = 127 // or its interpreter is not there
	case syscall.ENOMEM, syscall.EAGAIN:
		code = 71
	default:
		code = 126
	}
	return code, fmt.Errorf("%s: %w", r.command.Args[0], err)
}

// wait returns when the command has ended, or doesn't although it was killed.
func (r *run) wait(children <-chan os.Signal, lost <-chan struct{}) {
	stuck := false
	for r.reap(); !r.ended && !stuck; r.reap() {
		select {
		case sig := <-r.signals:
			r.forward(sig)
		case sig := <-r.others:
			r.forward(sig)
		case <-children:
		case <-lost:
			lost, r.result.Lost = nil, true
			if refuses(r.child) {
				r.command.Log("the lock is lost")
			} else {
				r.command.Log(fmt.Sprintf("the lock is lost: the command gets SIGTERM, and SIGKILL in %v", r.command.Grace))
			}
			r.endGroup()
		case <-r.due():
			switch {
			case !r.killed:
				if !refuses(r.child) {
					r.command.Log("the command gets SIGKILL")
				}
				r.killGroup()
			case r.awaitsRefused():
			default:
				stuck = true
			}
		}
	}
	switch {
	case !r.ended:
		r.command.Log("the command does not end by SIGKILL; not waiting any longer")
		r.result.Code, r.result.Signal = 128+int(syscall.SIGKILL), syscall.SIGKILL
	case r.status.Signaled():
		r.result.Code, r.result.Signal = 128+int(r.status.Signal()), r.status.Signal()
	default:
		r.result.Code = r.status.ExitStatus()
	}
	switch {
	case r.result.Signal != syscall.SIGINT:
	case r.interrupted:
		r.result.Interrupt = InterruptSelf
	case r.terminal.lent:
		r.result.Interrupt = InterruptGroup
	}
}

// reap takes the news of all children, those that were adopted included: in a
// container this process may be the first.
func (r *run) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil || pid <= 0:
			return
		case pid == r.child && status.Stopped():
			r.stopped(status.StopSignal())
		case pid == r.child:
			r.ended, r.status = true, status
		case pid == r.group.id && !status.Stopped():
			r.group.gone = true
			if !r.killed {
				r.command.Log("the watchdog was killed: should pgadvisory be killed too, what the command has started may run on without the lock")
			}
		}
	}
}
