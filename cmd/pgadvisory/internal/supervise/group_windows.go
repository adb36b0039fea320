package supervise

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// killLimit bounds the wait for those who were terminated.
const killLimit = 5 * time.Second

// Main does nothing on Windows: the job is the watchdog.
func Main() {}

// Signals are those that this process gets, as long as it listens.
type Signals struct {
	C chan os.Signal
}

// Listen takes Ctrl-C, which Windows also sends to the command.
func Listen() *Signals {
	s := &Signals{C: make(chan os.Signal, 64)}
	signal.Notify(s.C, os.Interrupt, syscall.SIGTERM)
	return s
}

// Notify is [signal.Notify].
func Notify(c chan<- os.Signal, signals ...os.Signal) { signal.Notify(c, signals...) }

// Stop ends it.
func (s *Signals) Stop() { signal.Stop(s.C) }

// Number is a signal's number.
func Number(sig os.Signal) int {
	n, _ := sig.(syscall.Signal)
	return int(n)
}

// Name is a signal's name.
func Name(sig os.Signal) string {
	switch sig {
	case os.Interrupt:
		return "SIGINT"
	case syscall.SIGTERM:
		return "SIGTERM"
	default:
		return sig.String()
	}
}

// Raise does nothing: Windows has sent the signal to all.
func Raise(Interrupt) {}

// Group is a job that this process is in, and that ends with it.
type Group struct {
	job windows.Handle
}

// NewGroup makes the job. It is left to the end of the process to close it.
func NewGroup() (*Group, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("create a job: %w", err)
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits))); err != nil {
		return nil, fmt.Errorf("set the job's limits: %w", err)
	}
	if err := windows.AssignProcessToJobObject(job, windows.CurrentProcess()); err != nil {
		return nil, fmt.Errorf("enter the job: %w", err)
	}
	return &Group{job: job}, nil
}

// Close does nothing: closing the job would end this process, and its end
// closes the job.
func (g *Group) Close() {}

// Hold does nothing: all in the job end with this process.
func (g *Group) Hold(syscall.Conn) error { return nil }

// Run runs a command in the job and returns when it has ended, and all that it
// left there. When lost is closed first, it ends the command. An error means that
// the command was not started; code is as with [Find].
func (g *Group) Run(command Command, signals *Signals, lost <-chan struct{}) (Result, int, error) {
	cmd := &exec.Cmd{
		Path: command.Path, Args: command.Args, Env: command.Env,
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
	}
	if err := cmd.Start(); err != nil {
		return Result{}, 126, fmt.Errorf("%s: %w", command.Args[0], err)
	}
	done := make(chan error, 1)
	// Ends with the command, which is terminated at the latest with this process.
	go func() { done <- cmd.Wait() }()
	var result Result
	for ended := false; !ended; {
		select {
		case <-signals.C: // the command has got it as well
			result.Asked = true
		case <-lost:
			lost, result.Lost = nil, true
			command.Log("the lock is lost: the command is terminated")
			g.terminateOthers()
		case <-done:
			ended = true
		}
	}
	result.Code = cmd.ProcessState.ExitCode()
	deadline := time.Now().Add(killLimit)
	for told := result.Lost; g.terminateOthers() && time.Now().Before(deadline); {
		if !told {
			told = true
			command.Log("the command has left processes behind: they are terminated")
		}
		<-time.After(5 * time.Millisecond)
	}
	return result, 0, nil
}

// terminateOthers terminates all in the job but this process, and reports
// whether there was anybody.
func (g *Group) terminateOthers() bool {
	var list struct {
		assigned, listed uint32
		ids              [4096]uintptr
	}
	err := windows.QueryInformationJobObject(g.job, windows.JobObjectBasicProcessIdList,
		uintptr(unsafe.Pointer(&list)), uint32(unsafe.Sizeof(list)), nil)
	if err != nil && !errors.Is(err, windows.ERROR_MORE_DATA) {
		return false
	}
	others := slices.DeleteFunc(list.ids[:list.listed], func(id uintptr) bool { return int(id) == os.Getpid() })
	for _, id := range others {
		if process, err := windows.OpenProcess(windows.PROCESS_TERMINATE, false, uint32(id)); err == nil {
			_ = windows.TerminateProcess(process, 1)
			_ = windows.CloseHandle(process)
		}
	}
	return len(others) > 0
}
