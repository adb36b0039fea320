//go:build unix

package redistest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
	"go.uber.org/goleak"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

const (
	envURL      = "REDIS_URL"
	envProvider = "PGADVISORY_TEST_REDIS_PROVIDER"
	envImage    = "PGADVISORY_TEST_REDIS_IMAGE"

	defaultImage = "redis:8-alpine"
	imageLimit   = 3 * time.Minute
	daemonLimit  = 5 * time.Second

	remedy = "set REDIS_URL, or start Docker, or install redis-server (Debian and Ubuntu: apt-get install redis-server; macOS: brew install redis)"
)

// shared is the server of all tests of this process, which is all that they have
// in common.
var shared struct {
	once sync.Once
	url  string
	err  error
	stop func() error
}

// URL is that of a server which all tests of the package share, as a URL for
// redis.ParseURL. The first call starts it if need be.
func URL(t testing.TB) string {
	t.Helper()
	shared.once.Do(find)
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.url
}

func find() {
	// Not a test's context: the server is not that test's.
	shared.url, shared.stop, shared.err = Find(context.Background())
}

// ForExamples points REDIS_URL to the shared server, so that a reader can copy the examples
// of a package. It is for TestMain.
func ForExamples() error {
	shared.once.Do(find)
	if shared.err != nil {
		return shared.err
	}
	return os.Setenv(envURL, shared.url)
}

// Main is what a package's TestMain consists of, where no test needs PostgreSQL: it runs
// the tests, stops the shared server if a test had it started, and looks for goroutines
// that are left.
func Main(m *testing.M) {
	code := m.Run()
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	// A test that failed may well have left goroutines. They are not the news.
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, "redistest: goroutines left after all tests:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// Tidy stops the shared server, for pgtest.Main.
func Tidy() {
	if err := stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

func stop() error {
	if shared.stop == nil {
		return nil
	}
	return shared.stop()
}

// Find returns the URL of the first server that can be had, and what stops it; for what
// is not a test.
func Find(ctx context.Context) (url string, stop func() error, err error) {
	forced := os.Getenv(envProvider)
	if url := os.Getenv(envURL); url != "" && (forced == "" || forced == "url") {
		return url, func() error { return nil }, nil
	}
	var failed error
	for _, p := range []struct {
		name  string
		start func(context.Context) (string, func() error, error)
	}{{"docker", startContainer}, {"installed", startInstalled}} {
		if forced != "" && forced != p.name {
			continue
		}
		url, stop, err := p.start(ctx)
		if err == nil {
			return url, stop, nil
		}
		failed = errors.Join(failed, fmt.Errorf("%s: %w", p.name, err))
	}
	return "", nil, fmt.Errorf("redistest: no server: %s: %w", remedy, failed)
}

func startInstalled(ctx context.Context) (string, func() error, error) {
	s, err := Launch(ctx)
	if err != nil {
		return "", nil, err
	}
	return s.URL(), s.Close, nil
}

func startContainer(ctx context.Context) (url string, stop func() error, err error) {
	pgtest.Silence()
	probe, cancel := context.WithTimeout(ctx, daemonLimit)
	defer cancel()
	docker, err := testcontainers.NewDockerClientWithOpts(probe)
	if err != nil {
		return "", nil, err
	}
	if err := docker.Close(); err != nil {
		return "", nil, err
	}
	ctx, cancel = context.WithTimeout(ctx, imageLimit)
	defer cancel()
	container, err := testcontainers.Run(ctx, cmp.Or(os.Getenv(envImage), defaultImage),
		testcontainers.WithExposedPorts("6379/tcp"),
		testcontainers.WithWaitStrategy(wait.ForLog("Ready to accept connections")))
	stop = func() error { return testcontainers.TerminateContainer(container, testcontainers.StopTimeout(0)) }
	if err != nil {
		return "", nil, errors.Join(err, stop())
	}
	if url, err = container.Endpoint(ctx, "redis"); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return url, stop, nil
}
