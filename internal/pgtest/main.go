package pgtest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// sharedLimit bounds the start of the shared server, downloads included.
const sharedLimit = 5 * time.Minute

// shared is the server of all tests of this process. It is global because the
// only thing that all tests of a package have in common is the process.
var shared = sharedServer{start: func(ctx context.Context) (*Server, error) { return Start(ctx, os.Stderr) }}

// A sharedServer is started by the first test that needs it.
type sharedServer struct {
	start func(context.Context) (*Server, error)

	// mu guards the fields below and is held during start and close.
	mu       sync.Mutex
	started  bool
	server   *Server
	err      error
	examples *Database // see MainWithExamples
	pooler   sharedPooler
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
		s.server, s.err = s.start(ctx)
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
	err := s.pooler.close()
	if s.examples != nil {
		err = errors.Join(err, s.server.template.dropDatabase(s.examples.Name))
	}
	return errors.Join(err, s.server.Close())
}

// Main is what a package's TestMain consists of. It runs the tests, stops the
// server if a test had it started, and looks for goroutines that are left. Then
// it exits; with a code other than zero if any of these failed. The tests don't
// see the variables of libpq that are set, nor do they and what they start ignore
// the signals that whoever started them ignored.
//
// Unless -parallel is given, eight tests run on each CPU at once: most of the
// time they wait for the server.
//
// Between the tests and the look for goroutines it calls tidy, for what tests have
// in common besides the server.
func Main(m *testing.M, tidy ...func()) {
	clearEnvironment()
	handleIgnoredSignals()
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", strconv.Itoa(8*runtime.GOMAXPROCS(0))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	code := m.Run()
	for _, f := range tidy {
		f()
	}
	os.Exit(finish(code))
}

// MainWithExamples is Main for a package whose examples connect to
// DATABASE_URL, so that a reader can copy them: it points the variable to a
// database of their own.
func MainWithExamples(m *testing.M) {
	if err := setDatabaseURL(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	Main(m)
}

func setDatabaseURL() error {
	clearEnvironment()
	server, err := shared.get() // which has read the variable by now
	if err != nil {
		return err
	}
	db, err := server.newDatabase(context.Background())
	if err != nil {
		return err
	}
	shared.examples = db
	return os.Setenv("DATABASE_URL", db.DSN)
}

// finish returns the process's exit code.
func finish(code int) int {
	if err := errors.Join(shared.close(), own.close()); err != nil {
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
	return code
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
