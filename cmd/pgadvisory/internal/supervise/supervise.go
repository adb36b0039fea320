package supervise

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Command is what to run.
type Command struct {
	Path string   // from [Find]
	Args []string // with the name as the first
	Env  []string
	// Grace is how long after SIGTERM a process that is to end gets SIGKILL.
	Grace time.Duration
	// Log is told in a sentence what else than waiting is done.
	Log func(sentence string)
}

// Result is how a command ended.
type Result struct {
	// Code is what the command exited with, or 128 + n if signal n ended it.
	Code int
	// Signal is that signal, or nil.
	Signal os.Signal
	// Lost says that the lock was lost before the command had ended.
	Lost bool
	// Asked says that this process got a signal by which somebody wants it to
	// end: SIGINT, SIGTERM or SIGQUIT.
	Asked bool
	// Interrupt says to whom SIGINT is to be repeated with [Raise], if that
	// ended the command.
	Interrupt Interrupt
}

// Interrupt is whether a script that has started this process has to learn of a
// SIGINT. Shells go on after a command that exits with a status, whatever that is:
// they take it to have dealt with the signal.
type Interrupt int

const (
	// NoInterrupt means that nobody wanted this process to end.
	NoInterrupt Interrupt = iota
	// InterruptSelf means that this process got SIGINT, and as a command of its
	// own would have ended by it.
	InterruptSelf
	// InterruptGroup means that the command had the terminal, which without
	// this process would have sent SIGINT to its whole process group.
	InterruptGroup
)

// Find returns the file of a command, by PATH unless its name has a slash. The
// error is for people; code is what shells and env(1) exit with then: 127 for a
// command that is not there, 126 for one that can't be executed.
func Find(name string) (path string, code int, err error) {
	path, err = exec.LookPath(name)
	var (
		failed *exec.Error
		why    *fs.PathError
	)
	if errors.As(err, &failed) && !errors.Is(err, exec.ErrNotFound) {
		err = failed.Err
	}
	if errors.As(err, &why) {
		err = why.Err
	}
	switch {
	case err == nil, errors.Is(err, exec.ErrDot):
		// What was named without a slash and found in the current folder is
		// what execvp would run, too.
		return path, 0, nil
	case errors.Is(err, exec.ErrNotFound) && isInPath(name):
		return "", 126, fmt.Errorf("%s: %w", name, fs.ErrPermission)
	case errors.Is(err, exec.ErrNotFound):
		return "", 127, fmt.Errorf("%s: command not found", name)
	case errors.Is(err, fs.ErrNotExist):
		return "", 127, fmt.Errorf("%s: %w", name, err)
	default: // a folder, a file that is not executable, a path through a file
		return "", 126, fmt.Errorf("%s: %w", name, err)
	}
}

// isInPath reports whether a name is in a folder of PATH, executable or not.
func isInPath(name string) bool {
	if name == "" {
		return false
	}
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil {
			return true
		}
	}
	return false
}
