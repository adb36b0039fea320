//go:build unix

package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRun_oneOfTwoCronsRuns(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	first := start(t, dsn, "run", "--no-wait", "nightly", "--", "sh", "-c", "echo running; read line; echo $line")
	first.waitFor("running")
	second := start(t, dsn, "run", "--no-wait", "nightly", "--", "sh", "-c", "echo running")
	second.ends(75)
	require.Empty(t, second.stdout.String())
	require.Contains(t, second.stderr.String(), "another session holds nightly")
	_, err := first.stdin.Write([]byte("done\n"))
	require.NoError(t, err)
	first.ends(0)
	require.Equal(t, "running\ndone\n", first.stdout.String())
	require.Empty(t, first.stderr.String())
	awaitHolders(t, observer, 0)
}

func TestRun_waitsForItsTurn(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	first := start(t, dsn, "run", "nightly", "--", "sh", "-c", "echo running; read line")
	first.waitFor("running")
	second := start(t, dsn, "run", "nightly", "--", "echo", "my turn")
	awaitWaiter(t, observer)
	require.NoError(t, first.stdin.Close())
	first.ends(1) // of read
	second.ends(0)
	require.Equal(t, "my turn\n", second.stdout.String())
}

func TestRun_givesUpAfterTheWait(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	first := start(t, dsn, "run", "nightly", "--", "sh", "-c", "echo running; read line")
	first.waitFor("running")
	begun := time.Now()
	second := start(t, dsn, "run", "--wait", "0.5", "-E", "3", "nightly", "--", "echo", "my turn")
	second.ends(3)
	require.GreaterOrEqual(t, time.Since(begun), 500*time.Millisecond)
	require.Contains(t, second.stderr.String(), "gave up after 500ms")
	require.Empty(t, second.stdout.String())
	awaitHolders(t, observer, 1)
	require.Zero(t, count(t, observer, false))
}

// A signal during the wait leaves nothing, and says so as a shell would.
func TestRun_signalDuringTheWait(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			dsn, observer := setup(t)
			first := start(t, dsn, "run", "nightly", "--", "sh", "-c", "echo running; read line")
			first.waitFor("running")
			second := start(t, dsn, "run", "nightly", "--", "echo", "my turn")
			awaitWaiter(t, observer)
			second.signal(sig)
			second.ends(128 + int(sig))
			require.Zero(t, count(t, observer, false))
			require.NoError(t, first.stdin.Close())
			first.ends(1)
			awaitHolders(t, observer, 0)
			require.Empty(t, second.stdout.String())
		})
	}
}

func TestRun_forwardsSignals(t *testing.T) {
	t.Parallel()
	dsn, _ := setup(t)
	p := start(t, dsn, "run", "nightly", "--", "sh", "-c",
		`trap 'echo usr1' USR1; trap 'echo hup' HUP; trap 'echo int' INT; trap 'echo term; exit 7' TERM; echo running; while :; do sleep 0.05; done`)
	p.waitFor("running")
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGINT, syscall.SIGINT, syscall.SIGHUP} {
		before := len(p.stdout.String())
		p.signal(sig)
		eventually(t, sig.String(), func() bool { return len(p.stdout.String()) > before })
	}
	require.Equal(t, "running\nusr1\nint\nint\nhup\n", p.stdout.String())
	p.signal(syscall.SIGTERM)
	p.ends(7)
}

func TestRun_commandThatASignalEnds(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	p := start(t, dsn, "run", "nightly", "--", "sh", "-c", "echo running; exec sleep 60")
	p.waitFor("running")
	p.signal(syscall.SIGINT)
	p.ends(128 + int(syscall.SIGINT))
	awaitHolders(t, observer, 0)
}

// pidFile has the command write its process id, or that of what it starts.
func pidFile(t *testing.T) (path string, read func() int) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "pid")
	return path, func() int {
		t.Helper()
		var pid int
		eventually(t, "a process id", func() bool {
			text, _ := os.ReadFile(path)
			n, err := strconv.Atoi(strings.TrimSpace(string(text)))
			pid = n
			return err == nil && strings.HasSuffix(string(text), "\n")
		})
		return pid
	}
}
