package pgtest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// envChild makes this test binary a process that only starts a server, or, if
// its value is one of relays, that in front of DATABASE_URL.
const envChild = "PGTEST_CHILD"

// A report is what the child says about its server.
type report struct{ DSN, Dir string }

func TestStart_leavesNothingWhenTheProcessIsKilled(t *testing.T) {
	t.Parallel()
	provider := ownProvider(t)

	child, stdout := startChild(t, "PGADVISORY_TEST_PROVIDER="+provider)
	r := readReport(t, stdout)
	requireThere(t, r)

	require.NoError(t, child.Process.Kill())
	require.Error(t, child.Wait())
	requireGone(t, r)
}

func TestStart_leavesNothingWhenTheProcessIsKilledMeanwhile(t *testing.T) {
	t.Parallel()
	if ownProvider(t) != "installed" {
		t.Skip("only an installed server has its files where the test can see them come")
	}
	for _, stage := range []string{".", "log", "data/PG_VERSION", "data/base/1", "data/postmaster.pid"} {
		t.Run(stage, func(t *testing.T) {
			t.Parallel()
			tmp := sharedTempDir(t)
			child, _ := startChild(t, "PGADVISORY_TEST_PROVIDER=installed", "TMPDIR="+tmp)
			require.Eventually(t, func() bool {
				matches, err := filepath.Glob(filepath.Join(tmp, "*", stage))
				return err == nil && len(matches) > 0
			}, time.Minute, time.Millisecond)

			require.NoError(t, child.Process.Kill())
			require.Error(t, child.Wait())
			require.Eventually(t, func() bool {
				entries, err := os.ReadDir(tmp)
				return err == nil && len(entries) == 0
			}, time.Minute, 20*time.Millisecond, "the server's files are still there")
		})
	}
}

func TestServer_Close_leavesNothing(t *testing.T) {
	t.Parallel()
	ownProvider(t)
	server, err := pgtest.Start(t.Context(), io.Discard)
	require.NoError(t, err)
	r := report{server.DSN(), server.Dir()}
	requireThere(t, r)

	require.NoError(t, server.Close())
	requireGone(t, r)
	require.NoError(t, server.Close(), "the second time")
}

func TestServer_Close_reportsAServerThatEndedBefore(t *testing.T) {
	t.Parallel()
	if ownProvider(t) != "installed" {
		t.Skip("only an installed server is a child of its watchdog")
	}
	server, err := pgtest.Start(t.Context(), io.Discard)
	require.NoError(t, err)
	r := report{server.DSN(), server.Dir()}
	text, err := os.ReadFile(filepath.Join(r.Dir, "data", "postmaster.pid"))
	require.NoError(t, err)
	first, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(first)
	require.NoError(t, err)
	postmaster, err := os.FindProcess(pid)
	require.NoError(t, err)
	require.NoError(t, postmaster.Kill())

	requireGone(t, r)
	require.ErrorContains(t, server.Close(), "ended on its own")
}

// startChild starts a process that starts a server. It ends with the test at the
// latest.
func startChild(t *testing.T, env ...string) (child *exec.Cmd, stdout io.Reader) {
	t.Helper()
	child = exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(append(os.Environ(), envChild+"=1"), env...)
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	require.NoError(t, err)
	t.Cleanup(func() { stdin.Close() })
	stdout, err = child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	return child, stdout
}

func readReport(t *testing.T, stdout io.Reader) report {
	t.Helper()
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, err)
	var r report
	require.NoError(t, json.Unmarshal(line, &r))
	return r
}

// sharedTempDir returns a folder that a server's user can use as well, which
// t.TempDir isn't.
func sharedTempDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "pgtest-tmp-") //nolint:usetesting // see above
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o777))
	return dir
}

// ownProvider returns the provider in use, if its server is ours to stop.
func ownProvider(t *testing.T) string {
	t.Helper()
	provider := pgtest.New(t).Server.Provider()
	if provider == "url" {
		t.Skip("a given server is never stopped")
	}
	return provider
}

func requireThere(t *testing.T, r report) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), r.DSN)
	require.NoError(t, err)
	require.NoError(t, conn.Close(t.Context()))
	if r.Dir != "" {
		require.DirExists(t, r.Dir)
	}
}

func requireGone(t *testing.T, r report) {
	t.Helper()
	config, err := pgx.ParseConfig(r.DSN)
	require.NoError(t, err)
	address := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	require.Eventually(t, func() bool {
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err == nil {
			conn.Close()
		}
		return err != nil
	}, time.Minute, 20*time.Millisecond, "the server still listens")
	if r.Dir == "" {
		return
	}
	require.Eventually(t, func() bool {
		_, err := os.Stat(r.Dir)
		return os.IsNotExist(err)
	}, time.Minute, 20*time.Millisecond, "the server's files are still there")
}

// runChild starts a server, reports it, and then waits to be killed.
func runChild() {
	r, err := startReported(context.Background())
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func startReported(ctx context.Context) (report, error) {
	if start, ok := relays[os.Getenv(envChild)]; ok {
		dsn, err := start(ctx, os.Getenv("DATABASE_URL"))
		return report{DSN: dsn}, err
	}
	server, err := pgtest.Start(ctx, os.Stderr)
	if err != nil {
		return report{}, err
	}
	return report{server.DSN(), server.Dir()}, nil
}
