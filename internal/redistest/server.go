//go:build unix

package redistest

import (
	"bufio"
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/freeport"
)

const (
	program = "redis-server"

	// startLimit bounds the start of a server, and attempts the number of ports
	// that are tried: another process may take one first.
	startLimit = 30 * time.Second
	attempts   = 5
	pollEvery  = 5 * time.Millisecond
)

// serveScript owns one server on behalf of the process that holds the other end of
// its standard input.
//
//go:embed serve.sh
var serveScript string

// Server is a process of redis-server on a loopback address. Its methods are not
// safe for concurrent use.
type Server struct {
	Port int
	Env  []string // in addition, from the next [Server.Restart] on

	dir   string
	args  []string
	shell *exec.Cmd
	pipe  io.Closer
	pid   int
}

// Start starts a server that lives until the test ends. The arguments are those of
// redis-server; without any it keeps nothing on disk. It skips the test where
// redis-server is not installed.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skip("needs the program redis-server (Debian and Ubuntu: apt-get install redis-server)")
	}
	s, err := Launch(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Launch is Start for what is not a test, and for who calls [Server.Close].
func Launch(ctx context.Context, args ...string) (*Server, error) {
	parent := os.TempDir()
	if os.Getenv("TMPDIR") == "" {
		if info, err := os.Stat("/dev/shm"); err == nil && info.IsDir() {
			parent = "/dev/shm"
		}
	}
	s := &Server{args: args, dir: filepath.Join(parent, "pgtest-"+strings.ToLower(rand.Text()))}
	if err := os.Mkdir(s.dir, 0o700); err != nil {
		return nil, err
	}
	var err error
	for range attempts {
		if s.Port, err = freeport.Next(); err != nil {
			break
		}
		if err = s.start(ctx); err == nil {
			return s, nil
		}
	}
	return nil, errors.Join(err, os.RemoveAll(s.dir))
}

// Addr is where the server listens.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.Port)) }

// URL is the server's address as a URL.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Freeze stops the server's process, so that it answers nobody.
func (s *Server) Freeze() error { return syscall.Kill(s.pid, syscall.SIGSTOP) }

// Thaw lets it go on.
func (s *Server) Thaw() error { return syscall.Kill(s.pid, syscall.SIGCONT) }

// Kill ends the server at once. What it has not written to its files is lost.
func (s *Server) Kill() error {
	if s.shell == nil {
		return nil
	}
	err := s.pipe.Close()
	_ = s.shell.Wait() // the shell says that the server was killed
	s.shell = nil
	return err
}

// Restart starts the server again, on the same port and with its files, after Kill.
func (s *Server) Restart(ctx context.Context) error {
	return errors.Join(s.Kill(), s.start(ctx))
}

// Close kills the server and removes its files.
func (s *Server) Close() error { return errors.Join(s.Kill(), os.RemoveAll(s.dir)) }

func (s *Server) start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	args := append([]string{
		"-c", serveScript, "redistest", program, "--port", strconv.Itoa(s.Port),
		"--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--logfile", filepath.Join(s.dir, "log"),
	}, s.args...)
	// Not bound to ctx, which is that of the start.
	s.shell = exec.Command("/bin/sh", args...)
	s.shell.Env = append(os.Environ(), s.Env...)
	s.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	stdin, err := s.shell.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := s.shell.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.shell.Start(); err != nil {
		return err
	}
	s.pipe = stdin
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err == nil {
		s.pid, err = strconv.Atoi(strings.TrimSpace(line))
	}
	if err == nil {
		err = waitUntilReady(ctx, s.Addr(), s.pid)
	}
	if err != nil {
		text, _ := os.ReadFile(filepath.Join(s.dir, "log")) // may not be there yet
		return errors.Join(fmt.Errorf("redistest: start %s: %w\n%s", program, err, text), s.Kill())
	}
	return nil
}

// waitUntilReady returns when the server answers. It fails at once when the server's
// process has ended.
func waitUntilReady(ctx context.Context, addr string, pid int) error {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		if isRedis(addr, pid) {
			return nil
		}
		if err := syscall.Kill(pid, 0); err != nil {
			return fmt.Errorf("the process has ended: %w", err)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// isRedis reports whether the server with that PID answers there, and not another
// one that was given the port.
func isRedis(addr string, pid int) bool {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "INFO server\r\nQUIT\r\n"); err != nil {
		return false
	}
	text, _ := io.ReadAll(conn) // ends by QUIT, or by the deadline while it loads
	return strings.Contains(string(text), fmt.Sprintf("process_id:%d\r\n", pid))
}
