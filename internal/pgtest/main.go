package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// sharedLimit bounds the start of the shared server, downloads included.
const sharedLimit = 5 * time.Minute

// shared is the server of all tests of this process. It is global because the
// only thing that all tests of a package have in common is the process.
var shared sharedServer

// A sharedServer is started by the first test that needs it.
type sharedServer struct {
	// mu guards the fields below and is held during start and close.
	mu      sync.Mutex
	started bool
	server  *Server
	err     error
}

// get starts the server at the first call; all calls return the same result.
func (s *sharedServer) get() (*Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started {
		// Not a test's context: the server is not that test's.
		ctx, cancel := context.WithTimeout(context.Background(), sharedLimit)
		defer cancel()
		s.started = true
		s.server, s.err = Start(ctx, os.Stderr)
	}
	return s.server, s.err
}

// close stops the server if there is one.
func (s *sharedServer) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	return s.server.Close()
}

// Main is what a package's TestMain consists of. It runs the tests, stops the
// server if a test had it started, and looks for goroutines that are left. Then
// it exits; with a code other than zero if any of these failed.
func Main(m *testing.M) {
	code := m.Run()
	if err := shared.close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	// A test that failed may well have left goroutines. They are not the news.
	if code == 0 {
		if err := findLeak(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest: goroutines left after all tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// findLeak waits for goroutines to end, and returns an error if some don't.
func findLeak() error {
	var err error
	for range 5 {
		// Find itself tries for about a second; closing sockets may take longer.
		if err = goleak.Find(); err == nil {
			return nil
		}
	}
	return err
}
