//go:build unix

package main

import (
	"context"
	"net"
	"net/url"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/stopwatch"
)

func TestRun_lostLockEndsTheWholeGroup(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	file, grandchild := pidFile(t)
	p := start(t, dsn, "run", "nightly", "--", "sh", "-c",
		`sleep 60 & echo $! >"$0"; trap 'echo term; exit 0' TERM; echo running; wait`, file)
	p.waitFor("running")
	pid := grandchild()
	terminateHolders(t, observer)
	p.ends(79)
	require.Equal(t, "running\nterm\n", p.stdout.String())
	// A heartbeat that meets the end of the session can hide what the server said.
	require.Regexp(t, `lost \((terminated|disconnected)\)`, p.stderr.String())
	require.Contains(t, p.stderr.String(), "the command ended with status 0")
	require.False(t, alive(pid))
}

func TestRun_lostLockKillsWhoIgnoresSIGTERM(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	file, grandchild := pidFile(t)
	p := start(t, dsn, "run", "--grace", "300ms", "nightly", "--", "sh", "-c",
		`trap '' TERM; sleep 60 & echo $! >"$0"; echo running; wait; sleep 60`, file)
	p.waitFor("running")
	pid := grandchild()
	begun := time.Now()
	terminateHolders(t, observer)
	p.ends(79)
	require.GreaterOrEqual(t, time.Since(begun), 300*time.Millisecond)
	require.Contains(t, p.stderr.String(), "killed by SIGKILL")
	require.False(t, alive(pid))
}

// The command ends within the grace, and what it has started goes on.
func TestRun_lostLockKillsAGrandchildThatStays(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	file, grandchild := pidFile(t)
	p := start(t, dsn, "run", "--grace", "300ms", "nightly", "--", "sh", "-c",
		`(trap '' TERM; sleep 60 & echo $! >"$0"; wait; sleep 60) & echo running; wait`, file)
	p.waitFor("running")
	pid := grandchild()
	terminateHolders(t, observer)
	p.ends(79)
	require.Contains(t, p.stderr.String(), "killed by SIGTERM")
	require.False(t, alive(pid))
}

// A stopped process can't act on SIGTERM.
func TestRun_lostLockEndsAStoppedCommand(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	file, child := pidFile(t)
	p := start(t, dsn, "run", "nightly", "--", "sh", "-c", `echo $$ >"$0"; trap 'exit 0' TERM; while :; do sleep 0.05; done`, file)
	pid := child()
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	terminateHolders(t, observer)
	p.ends(79)
	require.Contains(t, p.stderr.String(), "ended with status 0")
}

// However the command ended: if the lock was lost before, the status says so.
func TestRun_lostJustAsTheCommandEnds(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	for range 5 {
		p := start(t, dsn, "run", "nightly", "--", "sh", "-c", "echo running; read line; exit 0")
		p.waitFor("running")
		terminateHolders(t, observer)
		_, _ = p.stdin.Write([]byte("\n"))
		p.ends(79)
	}
}

// kill -9 of pgadvisory, with a grandchild: nobody works on.
func TestRun_killedPgadvisoryTakesItsGroupAlong(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	file, grandchild := pidFile(t)
	p := start(t, dsn, "run", "nightly", "--", "sh", "-c",
		`trap '' TERM INT HUP; sh -c 'echo $$ >"$0"; while :; do sleep 0.05; done' "$0" & echo running; wait`, file)
	p.waitFor("running")
	pid := grandchild()
	p.signal(syscall.SIGKILL)
	begun := time.Now()
	eventually(t, "the end of the group", func() bool { return !alive(pid) })
	t.Logf("gone %v after pgadvisory was killed", time.Since(begun))
	awaitHolders(t, observer, 0)
	p.wait()
	watchdogs, _ := exec.Command("ps", "-o", "pid=,args=", "--ppid", strconv.Itoa(p.pid())).Output()
	require.Empty(t, strings.TrimSpace(string(watchdogs)))
}

// Killing the watchdog loses the net, and not the command.
func TestRun_killedWatchdog(t *testing.T) {
	t.Parallel()
	dsn, _ := setup(t)
	p := start(t, dsn, "run", "nightly", "--", "sh", "-c", "echo running; read line; exit 3")
	p.waitFor("running")
	require.NoError(t, syscall.Kill(watchdogOf(t, p), syscall.SIGKILL))
	eventually(t, "a warning", func() bool { return strings.Contains(p.stderr.String(), "the watchdog was killed") })
	require.NoError(t, p.stdin.Close())
	p.ends(3)
}

func watchdogOf(t *testing.T, p *process) int {
	t.Helper()
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=,args=").Output()
	require.NoError(t, err)
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) >= 3 && f[1] == strconv.Itoa(p.pid()) && f[2] == "pg-adv-watchdog" {
			pid, err := strconv.Atoi(f[0])
			require.NoError(t, err)
			return pid
		}
	}
	t.Fatalf("no watchdog:\n%s", out)
	return 0
}

// What the command leaves behind does not work without the lock.
func TestRun_endsWhatTheCommandLeaves(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	file, left := pidFile(t)
	p := start(t, dsn, "run", "--grace", "300ms", "nightly", "--", "sh", "-c",
		`(trap '' TERM; sleep 60 & echo $! >"$0"; wait; sleep 60) </dev/null >/dev/null 2>&1 & while ! [ -s "$0" ]; do sleep 0.01; done; exit 4`, file)
	p.ends(4)
	require.Contains(t, p.stderr.String(), "has left processes behind")
	require.False(t, alive(left()))
	awaitHolders(t, observer, 0)
}

func TestRun_serverRestarts(t *testing.T) {
	t.Parallel()
	db := pgtest.StartWith(t)
	p := start(t, db.DSN, "run", "nightly", "--", "sh", "-c", "trap 'exit 0' TERM; echo running; while :; do sleep 0.05; done")
	p.waitFor("running")
	conn := db.Conn(t)
	waiter := start(t, db.DSN, "run", "--wait", "1h", "nightly", "--", "echo", "my turn")
	awaitWaiter(t, conn)
	require.NoError(t, conn.Close(context.Background()))
	require.NoError(t, db.Server.Close())
	p.ends(79)
	eventually(t, "a line on the server", func() bool { return strings.Contains(waiter.stderr.String(), "waiting for the server") })
	waiter.signal(syscall.SIGTERM)
	waiter.ends(128 + int(syscall.SIGTERM))
}

// A wait outlasts a server that is away for a while.
func TestRun_waitsForTheServer(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	proxy := faultproxy.Start(t, net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))))
	parsed, err := url.Parse(dsn)
	require.NoError(t, err)
	parsed.Host = proxy.Addr().String()

	first := start(t, dsn, "run", "nightly", "--", "sh", "-c", "echo running; read line; exit 0")
	first.waitFor("running")
	waiter := start(t, parsed.String(), "run", "nightly", "--", "echo", "my turn")
	awaitWaiter(t, observer)
	proxy.RefuseNew(true)
	proxy.Cut()
	eventually(t, "a line on the server", func() bool { return strings.Contains(waiter.stderr.String(), "waiting for the server") })
	proxy.RefuseNew(false)
	require.NoError(t, first.stdin.Close())
	first.ends(0)
	waiter.ends(0)
	require.Equal(t, "my turn\n", waiter.stdout.String())
}

// A network that goes silent is noticed within 10 s, and the command is gone a
// grace later.
func TestRun_silentNetwork(t *testing.T) {
	t.Parallel()
	dsn, _ := setup(t)
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	proxy := faultproxy.Start(t, net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))))
	parsed, err := url.Parse(dsn)
	require.NoError(t, err)
	parsed.Host = proxy.Addr().String()

	p := start(t, parsed.String(), "run", "--grace", "100ms", "nightly", "--", "sh", "-c", "trap '' TERM; echo running; while :; do sleep 0.05; done")
	p.waitFor("running")
	w := stopwatch.Start()
	proxy.Swallow()
	<-p.done
	took := w.Stop()
	p.ends(79)
	t.Logf("noticed, and ended, after %v", took)
	require.Less(t, took, 15*time.Second)
	require.Contains(t, p.stderr.String(), "lost (") // by a heartbeat, or by the statement that tells since when it is held
}
