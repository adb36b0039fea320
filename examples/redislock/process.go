//go:build unix

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
)

// settings are what a process is told.
type settings struct {
	Name     string
	Fence    string
	Amount   int
	Redis    string // a URL
	Postgres string // a connection string
	Gate     string // a URL
	Prefix   string // of all keys in Redis
}

const settingsVar = "REDISLOCK_SETTINGS"

func settingsFromEnv() (s settings, ok bool) {
	text := os.Getenv(settingsVar)
	return s, text != "" && json.Unmarshal([]byte(text), &s) == nil
}

// process is Alice or Bob, as the main process sees them.
type process struct {
	name  string
	out   io.Writer
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// start starts this program once more. The process ends with its standard input, and
// is killed when ctx ends.
func start(ctx context.Context, out io.Writer, s settings) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), settingsVar+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &process{s.Name, out, cmd, stdin, bufio.NewScanner(stdout)}, cmd.Start()
}

// wait passes on what the process says, until it says that.
func (p *process) wait(line string) error {
	for p.lines.Scan() {
		if _, err := fmt.Fprintf(p.out, "   %s %s\n", p.name, p.lines.Text()); err != nil {
			return err
		}
		if strings.HasPrefix(p.lines.Text(), line) {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("%s ended before it said: %s", p.name, line), p.lines.Err())
}

// pause stops the process, as a long garbage collection or a virtual machine that is moved
// does, and returns when it has stopped.
func (p *process) pause() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return err
		case !status.Stopped():
			return fmt.Errorf("%s ended instead of stopping", p.name)
		default:
			_, err := fmt.Fprintf(p.out, "   %s is paused\n", p.name)
			return err
		}
	}
}

// goOn lets the process go on, and tells it to write.
func (p *process) goOn() error {
	_, err := io.WriteString(p.stdin, "write\n")
	return errors.Join(err, p.cmd.Process.Signal(syscall.SIGCONT))
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only if it has ended
	_ = p.cmd.Wait()         // says that it was killed
}
