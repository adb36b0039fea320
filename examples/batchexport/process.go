//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// process is a replica as the main process sees it.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // closed when the process has ended and was reported
}

// report is an event and the replica it came from.
type report struct {
	event
	from *process
}

// startProcess starts this program once more, as a replica. Its events go to
// emit, from another goroutine; the last one is exited.
func startProcess(s settings, emit func(report)) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{name: s.name, cmd: exec.Command(self), ended: make(chan struct{})}
	p.cmd.Env = s.environ()
	p.cmd.Stderr = os.Stderr
	p.cmd.SysProcAttr = replicaAttr()
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	// Ends with the process, whose end closes its standard output; Kill waits
	// for it.
	go func() {
		defer close(p.ended)
		err := p.read(stdout, emit)
		err = errors.Join(err, p.cmd.Wait())
		last := event{Kind: exited}
		if err != nil {
			last.Text = err.Error()
		}
		emit(report{event: last, from: p})
	}()
	return p, nil
}

// read passes the events on until there are no more.
func (p *process) read(stdout io.Reader, emit func(report)) error {
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("unexpected output %q", lines.Text())
		}
		emit(report{event: e, from: p})
	}
	return lines.Err()
}

// Resume tells a replica that waits after its event half to go on.
func (p *process) Resume() error {
	_, err := io.WriteString(p.stdin, "go on\n")
	return err
}

// Freeze stops the process as a long garbage collection, a swapping machine or
// a paused virtual machine does, and returns when it has stopped.
func (p *process) Freeze() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return fmt.Errorf("wait until %s has stopped: %w", p.name, err)
		case !status.Stopped():
			return fmt.Errorf("%s ended instead of stopping", p.name)
		default:
			return nil
		}
	}
}

// Wake lets a frozen process go on.
func (p *process) Wake() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// Kill ends the process, also a frozen one, and waits for its end.
func (p *process) Kill() {
	_ = p.stdin.Close()      // its end is the same news
	_ = p.cmd.Process.Kill() // fails only if it has ended
	<-p.ended
}
