//go:build unix

package main_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runTimeout is what the program promises.
const runTimeout = time.Minute

// running is a run of the program.
type running struct {
	cmd    *exec.Cmd
	tmp    string
	pipe   io.ReadCloser
	stdout *bufio.Reader
	read   strings.Builder
	stderr bytes.Buffer
	began  time.Time
}

// result is how a run ended.
type result struct {
	code           int
	stdout, stderr string
}

// start starts the program on a given server. It is killed if it doesn't end.
func (p program) start(t *testing.T, dsn string, args ...string) *running {
	t.Helper()
	r := &running{cmd: exec.Command(p.binary, args...), tmp: t.TempDir(), began: time.Now()}
	r.cmd.Env = append(os.Environ(), "DATABASE_URL="+dsn, "PGADVISORY_TEST_PROVIDER=url", "TMPDIR="+r.tmp)
	r.cmd.Stderr = &r.stderr
	var err error
	r.pipe, err = r.cmd.StdoutPipe()
	require.NoError(t, err)
	r.stdout = bufio.NewReader(r.pipe)
	require.NoError(t, r.cmd.Start())
	watch := time.AfterFunc(runTimeout, func() { _ = r.cmd.Process.Kill() })
	t.Cleanup(func() {
		watch.Stop()
		_ = r.cmd.Process.Kill() // in case that the test didn't come to its end
		_ = r.cmd.Wait()
	})
	return r
}

// run runs the program to its end.
func (p program) run(t *testing.T, dsn string, args ...string) result {
	t.Helper()
	return p.start(t, dsn, args...).wait(t)
}

// waitFor reads the output up to a line that matches, and returns what the last
// pair of parentheses in the pattern matches.
func (r *running) waitFor(t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	for {
		line, err := r.stdout.ReadString('\n')
		r.read.WriteString(line)
		require.NoError(t, err, "no line like %s in:\n%s%s", pattern, r.read.String(), &r.stderr)
		if match := re.FindStringSubmatch(line); match != nil {
			return match[len(match)-1]
		}
	}
}

// closeOutput has the next write of the program fail.
func (r *running) closeOutput() { _ = r.pipe.Close() }

// wait waits for the end. Unless the program was killed it has removed its
// files by then.
func (r *running) wait(t *testing.T) result {
	t.Helper()
	rest, _ := io.ReadAll(r.stdout) // fails if closed
	r.read.Write(rest)
	_ = r.cmd.Wait() // the exit code says it
	end := result{code: r.cmd.ProcessState.ExitCode(), stdout: r.read.String(), stderr: r.stderr.String()}
	if end.code >= 0 {
		files, err := os.ReadDir(r.tmp)
		require.NoError(t, err)
		require.Empty(t, files, end.text())
	}
	require.Less(t, time.Since(r.began), runTimeout)
	return end
}

func (r result) text() string { return r.stdout + r.stderr }

// requireLines looks for lines that match, in this order.
func (r result) requireLines(t *testing.T, patterns ...string) {
	t.Helper()
	lines := strings.Split(r.stdout, "\n")
	for _, pattern := range patterns {
		re := regexp.MustCompile(pattern)
		for len(lines) > 0 && !re.MatchString(lines[0]) {
			lines = lines[1:]
		}
		require.NotEmpty(t, lines, "no line like %s, or not in this order:\n%s", pattern, r.stdout)
		lines = lines[1:]
	}
}
