//go:build unix

package main

import (
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// throughProxy is a database's address behind a proxy, which refuses connections
// until it is told otherwise.
func throughProxy(t *testing.T, dsn string) (string, *faultproxy.Proxy) {
	t.Helper()
	config, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	proxy := faultproxy.Start(t, net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))))
	parsed, err := url.Parse(dsn)
	require.NoError(t, err)
	parsed.Host = proxy.Addr().String()
	proxy.RefuseNew(true)
	return parsed.String(), proxy
}

// With --wait, and as a leader, a server that is down at the start is waited for.
func TestRun_waitsForAServerThatIsDownAtTheStart(t *testing.T) {
	t.Parallel()
	dsn, _ := setup(t)
	for name, args := range map[string][]string{
		"run":  {"run", "--wait", "1h", "nightly", "--", "echo", "my turn"},
		"lead": {"lead", "nightly", "--", "echo", "my turn"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			proxied, proxy := throughProxy(t, dsn)
			p := start(t, proxied, args...)
			p.says("waiting for the server")
			proxy.RefuseNew(false)
			p.ends(0)
			require.Equal(t, "my turn\n", p.stdout.String())
		})
	}
}

// A signal ends the wait for a server, too.
func TestLead_signalWhileTheServerIsDown(t *testing.T) {
	t.Parallel()
	dsn, _ := setup(t)
	proxied, _ := throughProxy(t, dsn)
	p := start(t, proxied, "lead", "nightly", "--", "true")
	p.says("waiting for the server")
	p.signal(syscall.SIGTERM)
	p.ends(128 + int(syscall.SIGTERM))
	require.Contains(t, p.stderr.String(), "ended by SIGTERM")
}

const term = `echo "term $PGADVISORY_TOKEN"; trap 'echo resigned; exit 5' TERM; while :; do sleep 0.01; done`

// After a loss the command is ended, and run again once the lock is held again,
// with a greater token. SIGTERM resigns.
func TestLead_leadsAgainAfterALoss(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	p := start(t, dsn, "lead", "--fence", "scheduler", "--", "sh", "-c", term)
	p.waitFor("term 1")
	standby := start(t, dsn, "lead", "--fence", "scheduler", "--", "sh", "-c", term)
	awaitWaiter(t, observer)
	terminateHolders(t, observer)
	p.waitFor("resigned")
	p.says("campaigning again")
	standby.waitFor("term 2")
	awaitWaiter(t, observer)
	standby.signal(syscall.SIGTERM)
	standby.ends(5)
	p.waitFor("term 3")
	awaitHolders(t, observer, 1)
	p.signal(syscall.SIGTERM)
	p.ends(5)
	require.Equal(t, "term 1\nresigned\nterm 3\nresigned\n", p.stdout.String())
	awaitHolders(t, observer, 0)
}

// A command that ends while the lock is held ends the lead, and whoever resigns
// during a loss doesn't lead again.
func TestLead_ends(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	start(t, dsn, "lead", "scheduler", "--", "sh", "-c", "exit 3").ends(3)
	p := start(t, dsn, "lead", "--grace", "1h", "scheduler", "--", "sh", "-c",
		`trap 'echo term' TERM; echo leading; while ! read line; do sleep 0.01; done`)
	p.waitFor("leading")
	terminateHolders(t, observer)
	p.waitFor("term")
	p.signal(syscall.SIGTERM)
	eventually(t, "a second SIGTERM", func() bool { return strings.Count(p.stdout.String(), "term") == 2 })
	_, err := p.stdin.Write([]byte("end\n"))
	require.NoError(t, err)
	p.ends(79)
	require.Equal(t, "leading\nterm\nterm\n", p.stdout.String())
}

// As the entry point of a container it is the first process there.
func TestLead_asTheFirstProcess(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("unshare"); err != nil || os.Getuid() != 0 {
		t.Skip("only root, on Linux, can make a PID namespace")
	}
	dsn, observer := setup(t)
	inNamespace := func(args ...string) *process {
		return startCommand(t, func(cmd *exec.Cmd) {
			cmd.Args = append([]string{"unshare", "--pid", "--fork", "--kill-child", "--mount-proc", cmd.Path}, cmd.Args[1:]...)
			cmd.Path, _ = exec.LookPath("unshare")
			cmd.Env = environ(dsn)
		}, args...)
	}
	// Orphans are the first process's to reap.
	p := inNamespace("lead", "scheduler", "--", "sh", "-c",
		`(sleep 0.01 & exec true) & wait; trap 'echo resigned; exit 0' TERM; echo "leading $PPID"; while :; do sleep 0.01; done`)
	p.waitFor("leading 1")
	terminateHolders(t, observer)
	eventually(t, "a second term", func() bool { return strings.Count(p.stdout.String(), "leading 1\n") == 2 })
	first, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid()) + "/task/" + strconv.Itoa(p.pid()) + "/children")
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(first)))
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, syscall.SIGTERM))
	p.ends(0)
	require.Equal(t, "leading 1\nresigned\nleading 1\nresigned\n", p.stdout.String())
	awaitHolders(t, observer, 0)
}

// A standby that is to be promoted is waited for.
func TestLead_waitsForThePromotion(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	p := start(t, pair.Standby.DSN, "lead", "scheduler", "--", "echo", "leading")
	p.says("standby")
	pair.Promote(t)
	p.ends(0)
	require.Equal(t, "leading\n", p.stdout.String())
}
