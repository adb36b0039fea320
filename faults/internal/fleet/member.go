//go:build unix

package fleet

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"syscall"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
	"github.com/pgadvisory/pgadvisory/faults/internal/worker"
	"github.com/pgadvisory/pgadvisory/internal/childproc"
	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
)

// endLimit bounds the wait for the end of a process.
const endLimit = 30 * time.Second

// Member is one worker, whose process can be killed and started again.
type Member struct {
	Proxy      *faultproxy.Proxy
	RedisProxy *faultproxy.Proxy // nil without a Redis

	config worker.Config
	log    *history.Log
	cmd    *exec.Cmd
	in     io.WriteCloser
	heard  chan struct{} // closed when all that the process said is in the log
	err    error         // of what it said; read after heard
}

// start begins the member's next life.
func (m *Member) start() error {
	m.config.Life++
	env, err := m.config.Env()
	if err != nil {
		return err
	}
	if m.cmd, err = childproc.Command(worker.Role, env); err != nil {
		return err
	}
	if m.in, err = m.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := m.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := m.cmd.Start(); err != nil {
		return err
	}
	m.heard = make(chan struct{})
	// Ends with the output, which the end of the process ends; wait waits for it.
	go func() {
		defer close(m.heard)
		m.err = m.listen(out)
	}()
	return nil
}

func (m *Member) listen(out io.Reader) error {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e history.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return fmt.Errorf("worker %d said %q: %w", m.config.Worker, lines.Text(), err)
		}
		m.log.Add(e)
	}
	return lines.Err()
}

// Tell gives the process an order.
func (m *Member) Tell(order string) error {
	_, err := fmt.Fprintln(m.in, order)
	return err
}

// Freeze stops the process; it returns when no part of it runs.
func (m *Member) Freeze() error {
	if err := m.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	// A child that was stopped is told of like one that has ended.
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(m.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err == nil && !status.Stopped() {
			return fmt.Errorf("worker %d has ended: %v", m.config.Worker, status)
		}
		return err
	}
}

// Thaw lets a frozen process go on.
func (m *Member) Thaw() error { return m.signal(syscall.SIGCONT) }

func (m *Member) signal(s syscall.Signal) error { return m.cmd.Process.Signal(s) }

// Kill ends the process, frozen or not, without a chance to clean up, and returns
// when it is gone and all that it said is in the log.
func (m *Member) Kill() error {
	if m.cmd.Process == nil {
		return fmt.Errorf("worker %d was never started", m.config.Worker)
	}
	if err := m.cmd.Process.Kill(); err != nil {
		return err
	}
	_ = m.wait() // says that it was killed
	return m.err
}

// wait waits for the end of the process.
func (m *Member) wait() error {
	select {
	case <-m.heard:
	case <-time.After(endLimit):
		_ = m.cmd.Process.Kill()
		<-m.heard
	}
	_ = m.in.Close()
	return m.cmd.Wait()
}

func (m *Member) closeProxies() {
	m.Proxy.Close()
	if m.RedisProxy != nil {
		m.RedisProxy.Close()
	}
}

// Respawn begins another life after Kill.
func (m *Member) Respawn() error { return m.start() }

// Life counts the member's processes.
func (m *Member) Life() int { return m.config.Life }

// Number is the worker's, from 1.
func (m *Member) Number() int { return m.config.Worker }
