package main

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a process is started to ignore is ignored by the command, as it would be
// without pgadvisory between them.
func TestRun_theCommandIgnoresWhatPgadvisoryWasStartedToIgnore(t *testing.T) {
	t.Parallel()
	dsn, _ := setup(t)
	program := filepath.Join(binDir(t), program)
	for _, signals := range []string{
		"", "HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "PIPE", "ALRM", "TSTP", "TTIN", "TTOU", "CONT", "WINCH", "XFSZ", "64", "PIPE TERM TSTP",
	} {
		ignored := func(prefix ...string) string {
			trap := ""
			if signals != "" {
				trap = "trap '' " + signals + "; "
			}
			cmd := exec.Command("bash", append([]string{"-c", trap + `exec "$@"`, "bash"}, append(prefix, "grep", "SigIgn", "/proc/self/status")...)...)
			cmd.Env = environ(dsn)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			return string(out)
		}
		require.Equal(t, ignored(), ignored(program, "run", "nightly", "--"), signals)
	}
}

// A signal that is ignored doesn't end a wait either.
func TestRun_ignoredSignalsDoNotEndTheWait(t *testing.T) {
	t.Parallel()
	for name, sig := range map[string]syscall.Signal{
		"HUP": syscall.SIGHUP, "INT": syscall.SIGINT, "QUIT": syscall.SIGQUIT, "TERM": syscall.SIGTERM, "PIPE": syscall.SIGPIPE,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, observer := setup(t)
			first := start(t, dsn, "run", "nightly", "--", "sh", "-c", "echo running; read line; exit 0")
			first.waitFor("running")
			second := startCommand(t, func(cmd *exec.Cmd) {
				cmd.Args = append([]string{"sh", "-c", "trap '' " + name + `; exec "$@"`, "sh", cmd.Path}, cmd.Args[1:]...)
				cmd.Path = "/bin/sh"
				cmd.Env = environ(dsn)
			}, "run", "nightly", "--", "echo", "my turn")
			awaitWaiter(t, observer)
			second.signal(sig)
			require.NoError(t, first.stdin.Close())
			first.ends(0)
			second.ends(0)
			require.Equal(t, "my turn\n", second.stdout.String())
		})
	}
}
