package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// nobody is a user without privileges.
const nobody = 65534

// escapee is a command line of a helper that pgadvisory, run by nobody, may not
// signal, and what it leads to.
type escapee struct {
	command []string
	plain   []string // the same without the set-user-ID bit
	pid     func() int
	release func()
}

func newEscapee(t *testing.T) escapee {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can make a program that changes its user id")
	}
	folder := t.TempDir()
	// Nobody has to find the program and what it writes.
	for dir := folder; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	require.NoError(t, os.Chmod(folder, 0o777))
	require.NoError(t, os.Chmod(binDir(t), 0o755))
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	program := filepath.Join(folder, "escape")
	require.NoError(t, os.WriteFile(program, self, 0o755))
	require.NoError(t, os.Chmod(program, 0o755|os.ModeSetuid))
	plain := filepath.Join(folder, "plain")
	require.NoError(t, os.WriteFile(plain, self, 0o755))
	started, stop := filepath.Join(folder, "pid"), filepath.Join(folder, "stop")
	release := func() { require.NoError(t, os.WriteFile(stop, nil, 0o644)) }
	t.Cleanup(func() { releaseAndWait(t, started, release) })
	return escapee{
		command: []string{program, started, stop},
		plain:   []string{plain, started, stop},
		pid:     func() int { return readPID(t, started) },
		release: release,
	}
}

// releaseAndWait returns when a helper that was started has ended.
func releaseAndWait(t *testing.T, started string, release func()) {
	t.Helper()
	release()
	if _, err := os.Stat(started); err == nil {
		pid := readPID(t, started)
		eventually(t, "the end of a helper", func() bool { return !alive(pid) })
	}
}

func readPID(t *testing.T, path string) (pid int) {
	t.Helper()
	eventually(t, "a process id", func() bool {
		text, _ := os.ReadFile(path)
		n, err := strconv.Atoi(strings.TrimSpace(string(text)))
		pid = n
		return err == nil && strings.HasSuffix(string(text), "\n")
	})
	return pid
}

// startAsNobody runs pgadvisory by a user who may not signal root's processes.
func startAsNobody(t *testing.T, dsn, helper string, args ...string) *process {
	t.Helper()
	return startCommand(t, func(cmd *exec.Cmd) {
		cmd.Env = environ(dsn, helperVar+"="+helper)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}, args...)
}

// sole is the process id of the only holder's session.
func sole(t *testing.T, conn *pgx.Conn) (pid int) {
	t.Helper()
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
		AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&pid))
	return pid
}

// After a loss nothing says that a command was killed that can't be.
func TestRun_lostLockWithACommandThatCannotBeKilled(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	e := newEscapee(t)
	p := startAsNobody(t, dsn, "escape", append([]string{"run", "--grace", "50ms", "nightly", "--"}, e.command...)...)
	pid := e.pid()
	terminateHolders(t, observer)
	p.says(fmt.Sprintf("process %d (escape) runs as another user, and pgadvisory may not signal it: it works on without the lock", pid))
	p.says(fmt.Sprintf("waiting for the end of process %d (escape), which can't be killed", pid))
	require.True(t, alive(pid))
	e.release()
	p.ends(79)
	require.NotContains(t, p.stderr.String(), "SIGTERM")
	require.NotContains(t, p.stderr.String(), "SIGKILL")
	require.Contains(t, p.stderr.String(), "the command ended with status 0")
}

// What the command leaves behind keeps the lock for as long as it can't be killed.
func TestRun_keepsTheLockForWhatCannotBeKilled(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	e := newEscapee(t)
	p := startAsNobody(t, dsn, "escape", append([]string{
		"run", "--grace", "10ms", "nightly", "--", "sh", "-c",
		`"$@" & while ! [ -s "$2" ]; do sleep 0.01; done; exit 4`, "sh",
	}, e.command...)...)
	pid := e.pid()
	p.says("the lock stays held until that process has ended by itself")
	p.says(fmt.Sprintf("waiting for the end of process %d (escape), which can't be killed", pid))
	start(t, dsn, "run", "--no-wait", "nightly", "--", "true").ends(75)
	e.release()
	p.ends(4)
	awaitHolders(t, observer, 0)
}

// kill -9 of pgadvisory: the watchdog keeps the session until the command has
// ended, so that nobody else gets the lock.
func TestRun_killedPgadvisoryKeepsTheLockForWhatCannotBeKilled(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	e := newEscapee(t)
	p := startAsNobody(t, dsn, "escape", append([]string{"run", "nightly", "--"}, e.command...)...)
	pid := e.pid()
	session := sole(t, observer)
	watchdog := watchdogOf(t, p)
	p.signal(syscall.SIGKILL)
	waiter := start(t, dsn, "run", "nightly", "--", "echo", "my turn")
	awaitWaiter(t, observer)
	require.Equal(t, session, sole(t, observer))
	require.True(t, alive(pid))
	require.True(t, alive(watchdog))
	e.release()
	waiter.ends(0)
	eventually(t, "the end of the watchdog", func() bool { return !alive(watchdog) })
}

func requireKilledByALoss(t *testing.T, observer *pgx.Conn, p *process, e escapee) {
	t.Helper()
	pid := e.pid()
	terminateHolders(t, observer)
	p.ends(79)
	require.False(t, alive(pid))
	require.NotContains(t, p.stderr.String(), "as another user")
}

// setpriv keeps the set-user-ID bit from having an effect: what docs/command.md
// advises to those who want to keep control.
func TestRun_lostLockEndsACommandWithoutNewPrivileges(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	e := newEscapee(t)
	p := startAsNobody(t, dsn, "escape", append([]string{
		"run", "--grace", "50ms", "nightly", "--", "setpriv", "--no-new-privs", "--",
	}, e.command...)...)
	requireKilledByALoss(t, observer, p, e)
}

// Root may signal whoever the command becomes.
func TestRun_lostLockEndsACommandOfAnotherUserForRoot(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	e := newEscapee(t)
	p := startWith(t, environ(dsn, helperVar+"=escape"), append([]string{
		"run", "--grace", "50ms", "nightly", "--", "setpriv", "--reuid", strconv.Itoa(nobody), "--clear-groups", "--",
	}, e.plain...)...)
	requireKilledByALoss(t, observer, p, e)
}

// A process that has ended, and that nobody reaps, works on nothing.
func TestRun_aZombieInTheGroupIsNotLeft(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	folder := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	started, stop := filepath.Join(folder, "pid"), filepath.Join(folder, "stop")
	t.Cleanup(func() { releaseAndWait(t, started, func() { require.NoError(t, os.WriteFile(stop, nil, 0o644)) }) })
	p := startWith(t, environ(dsn, helperVar+"=zombie"), "run", "nightly", "--", "sh", "-c",
		`"$@" </dev/null >/dev/null 2>&1 & while ! [ -s "$2" ]; do sleep 0.01; done; exit 4`, "sh", self, started, stop)
	p.ends(4)
	require.Empty(t, p.stderr.String())
	awaitHolders(t, observer, 0)
}

// As the first process of a PID namespace, as in a container, its own group may be
// outside.
func TestRun_firstOfAPIDNamespace(t *testing.T) {
	t.Parallel()
	if os.Getuid() != 0 {
		t.Skip("only root can make a PID namespace")
	}
	for name, flags := range map[string][]string{
		"with its own proc":  {"--pid", "--fork", "--kill-child", "--mount-proc"},
		"with another's":     {"--pid", "--fork", "--kill-child"},
		"in its own session": {"--pid", "--fork", "--kill-child", "--mount-proc", "setsid", "--wait"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, observer := setup(t)
			program := filepath.Join(binDir(t), program)
			p := startCommand(t, func(cmd *exec.Cmd) {
				cmd.Path, _ = exec.LookPath("unshare")
				cmd.Args = append(append([]string{"unshare"}, flags...), append([]string{program}, cmd.Args[1:]...)...)
				cmd.Env = environ(dsn)
			}, "run", "--no-wait", "nightly", "--", "sh", "-c", "exit 4")
			p.ends(4)
			require.Empty(t, p.stderr.String())
			awaitHolders(t, observer, 0)
		})
	}
}
