//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// limit bounds each wait of a test.
const limit = 90 * time.Second

// environ is the tests' environment without its database, and with another.
func environ(dsn string, more ...string) []string {
	var env []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "PG") && !strings.HasPrefix(pair, "DATABASE_URL=") {
			env = append(env, pair)
		}
	}
	return append(append(env, "DATABASE_URL="+dsn, "PGPASSFILE=/dev/null", "PGSERVICEFILE=/dev/null"), more...)
}

// process is the command, run by a test.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout safeBuffer
	stderr safeBuffer
	done   chan struct{}
}

// start runs pgadvisory with a database. It is killed at the end of the test.
func start(t *testing.T, dsn string, args ...string) *process {
	t.Helper()
	return startWith(t, environ(dsn), args...)
}

func startWith(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	return startCommand(t, func(cmd *exec.Cmd) { cmd.Env = env }, args...)
}

// startCommand is start with a command that was prepared.
func startCommand(t *testing.T, prepare func(*exec.Cmd), args ...string) *process {
	t.Helper()
	p := &process{t: t, done: make(chan struct{})}
	p.cmd = exec.Command(filepath.Join(binDir(t), program), args...)
	prepare(p.cmd)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	// What outlives the command shall not keep its output open for ever.
	p.cmd.WaitDelay = limit
	var err error
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	// Ends with the process, which the cleanup kills.
	go func() {
		_ = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (p *process) pid() int { return p.cmd.Process.Pid }

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

// wait returns the status that a shell would have for the process.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(limit):
		p.t.Fatalf("still running; stdout %q, stderr %q", p.stdout.String(), p.stderr.String())
	}
	if status := p.cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return p.cmd.ProcessState.ExitCode()
}

// waitFor returns once stdout has a line.
func (p *process) waitFor(line string) {
	p.t.Helper()
	eventually(p.t, "the line "+line, func() bool {
		return strings.Contains("\n"+p.stdout.String(), "\n"+line+"\n")
	})
}

// says returns once stderr has a text.
func (p *process) says(text string) {
	p.t.Helper()
	eventually(p.t, text, func() bool { return strings.Contains(p.stderr.String(), text) })
}

// ends waits for the process and wants its status.
func (p *process) ends(status int) {
	p.t.Helper()
	require.Equal(p.t, status, p.wait(), "stderr: %s", p.stderr.String())
}

func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !condition(); {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// alive reports whether a process is there and not only waits to be reaped.
func alive(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return err == nil && len(bytes.TrimSpace(out)) > 0 && out[0] != 'Z'
}

// count is how many sessions hold, or wait for, advisory locks of one number in the
// database: those of names, and not the pairs that waiting sessions hold.
func count(t testing.TB, conn *pgx.Conn, granted bool) int {
	t.Helper()
	var n int
	err := conn.QueryRow(context.Background(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted = $1 AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`, granted).Scan(&n)
	require.NoError(t, err)
	return n
}

func awaitHolders(t testing.TB, conn *pgx.Conn, n int) {
	t.Helper()
	eventually(t, "holders", func() bool { return count(t, conn, true) == n })
}

func awaitWaiter(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	eventually(t, "a waiter", func() bool { return count(t, conn, false) > 0 })
}

// terminateHolders has the server end the sessions that hold.
func terminateHolders(t testing.TB, conn *pgx.Conn) {
	t.Helper()
	_, err := conn.Exec(context.Background(), `SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`)
	require.NoError(t, err)
}

// safeBuffer is written by a process and read by the test.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// setup returns a database and a session to look at its locks.
func setup(t *testing.T) (dsn string, observer *pgx.Conn) {
	t.Helper()
	db := pgtest.New(t)
	return db.DSN, db.Conn(t)
}
