package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// terminal is a pseudo-terminal with a shell, as a user has one.
type terminal struct {
	t      *testing.T
	keys   *os.File
	screen safeBuffer
}

// openTerminal starts a program as the leader of a session with a terminal.
func openTerminal(t *testing.T, dsn, name string, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	require.NoError(t, err)
	require.NoError(t, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0))
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(t, err)
	defer slave.Close()

	cmd := exec.Command(name, args...)
	cmd.Env = environ(dsn, "PATH="+binDir(t)+string(os.PathListSeparator)+os.Getenv("PATH"), "PS1=$ ", "TERM=dumb", "HISTFILE=")
	cmd.Dir = t.TempDir()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	require.NoError(t, cmd.Start())
	term := &terminal{t: t, keys: master}
	done := make(chan struct{})
	// Ends with the terminal's last user, or with the master.
	go func() {
		defer close(done)
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			_, _ = term.screen.Write(bytes.ReplaceAll(buffer[:n], []byte("\r"), nil))
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = master.Close()
		<-done
	})
	return term
}

func (s *terminal) press(keys string) {
	s.t.Helper()
	_, err := s.keys.WriteString(keys)
	require.NoError(s.t, err)
}

// sees waits for text that appears after the last one that was seen.
func (s *terminal) sees(text string) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the screen:\n%s", s.screen.String())
		}
	}()
	eventually(s.t, "the text "+text, func() bool { return strings.Contains(s.screen.String(), text) })
}

func (s *terminal) seesMatch(pattern string) {
	s.t.Helper()
	matches := regexp.MustCompile(pattern)
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the screen:\n%s", s.screen.String())
		}
	}()
	eventually(s.t, pattern, func() bool { return matches.MatchString(s.screen.String()) })
}

// A command that reads from the terminal gets it, and the shell gets it back.
func TestRun_readsFromATerminal(t *testing.T) {
	t.Parallel()
	dsn, _ := setup(t)
	s := openTerminal(t, dsn, "bash", "--norc", "-i")
	s.press("pgadvisory run nightly -- sh -c 'echo ask''ing; read line; echo got-$line'; echo status-$?\n")
	s.sees("asking\n")
	s.press("this\n")
	s.sees("got-this\n")
	s.sees("status-0\n")
	s.press("read again; echo shell-$again\n")
	s.press("that\n")
	s.sees("shell-that\n")
}

// Ctrl-C ends the command, whoever has the terminal, and what stands after it in
// a script.
func TestRun_ctrlC(t *testing.T) {
	t.Parallel()
	for name, command := range map[string]string{
		"in the background": "echo run''ning; sleep 60",
		"in the foreground": "read line; echo run''ning; sleep 60",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dsn, observer := setup(t)
			s := openTerminal(t, dsn, "bash", "--norc", "-i")
			script := filepath.Join(t.TempDir(), "script")
			require.NoError(t, os.WriteFile(script, []byte("pgadvisory run nightly -- bash -c \""+command+"\"\necho went on\n"), 0o600))
			s.press("bash " + script + "\n")
			if name == "in the foreground" {
				awaitHolders(t, observer, 1)
				s.press("line\n")
			}
			s.sees("running\n")
			s.press("\x03")
			awaitHolders(t, observer, 0)
			s.press("echo status-$?\n")
			s.sees("status-130\n")
			require.NotContains(t, s.screen.String(), "went on")
		})
	}
}

// Ctrl-Z stops the command and gives the shell the terminal; fg undoes both. The
// lock stays held.
func TestRun_ctrlZ(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	s := openTerminal(t, dsn, "bash", "--norc", "-i")
	s.press("pgadvisory run nightly -- bash -c 'read a; echo one-$a; read b; echo two-$b'\n")
	awaitHolders(t, observer, 1)
	s.press("first\n")
	s.sees("one-first\n")
	s.press("\x1a")
	s.sees("Stopped")
	s.press("echo shell-$((1+1))\n")
	s.sees("shell-2\n")
	require.Equal(t, 1, count(t, observer, true))
	s.press("fg\n")
	s.sees("fg\npgadvisory run nightly")
	s.press("second\n")
	s.sees("two-second\n")
	awaitHolders(t, observer, 0)
}

// Beside the command in a pipeline, a pager has the terminal.
func TestRun_besideAPager(t *testing.T) {
	t.Parallel()
	dsn, _ := setup(t)
	s := openTerminal(t, dsn, "bash", "--norc", "-i")
	s.press("pgadvisory run nightly -- echo page | (cat; read line </dev/tty; echo pager-$line)\n")
	s.sees("page\n")
	s.press("next\n")
	s.sees("pager-next\n")
}

// At any width of a terminal ls shows who waits, for how long and for whom.
func TestLs_fitsTheTerminal(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	const long = "export-of-the-customers-and-their-orders-to-the-warehouse-in-frankfurt-on-the-first-day-of-the-month"
	for _, args := range [][]string{{long}, {"export-日本"}, {"accounts", "invoices"}} {
		p := start(t, dsn, append(append([]string{"run"}, args...), "--", "sh", "-c", "echo running; read line")...)
		p.waitFor("running")
	}
	start(t, dsn, "run", "export-日本", "--", "true")
	eventually(t, "marks", func() bool {
		var n int
		require.NoError(t, observer.QueryRow(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE application_name ~ ' @[0-9]+$' AND datname = current_database()").Scan(&n))
		return n == 3
	})
	awaitWaiter(t, observer)
	screens := make(map[uint16]*terminal)
	for _, width := range []uint16{80, 120, 200} {
		s := openTerminal(t, dsn, "bash", "--norc", "-i")
		screens[width] = s
		require.NoError(t, unix.IoctlSetWinsize(int(s.keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 30, Col: width}))
		s.press("PS1=; pgadvisory ls --watch 100ms\n")
	}
	for width, s := range screens {
		s.seesMatch(`export-日本 +.* [0-9]+s \(by [0-9]+\)`)
		for _, title := range []string{"export-of-the-", "export-日本", "accounts", "(with accounts)"} {
			s.seesMatch("(?m)" + regexp.QuoteMeta(title) + `.* exclusive .* [0-9]+s +-`)
		}
		for line := range strings.Lines(s.screen.String()) {
			if strings.Contains(line, "exclusive") {
				line = strings.NewReplacer("\x1b[K", "", "\x1b[H", "", "\x1b[J", "", "\n", "", "日", "xx", "本", "xx").Replace(line)
				require.LessOrEqual(t, len([]rune(line)), int(width), line)
			}
		}
	}
}

// ls --watch draws in place.
func TestLs_watchRedraws(t *testing.T) {
	t.Parallel()
	dsn, observer := setup(t)
	s := openTerminal(t, dsn, "bash", "--norc", "-i")
	s.press("pgadvisory ls --watch 100ms\n")
	s.sees("WAITING FOR")
	p := start(t, dsn, "run", "nightly", "--", "sh", "-c", "echo running; read line; exit 0")
	p.waitFor("running")
	s.sees("\x1b[H")
	s.sees("nightly")
	require.NoError(t, p.stdin.Close())
	p.ends(0)
	awaitHolders(t, observer, 0)
	s.press("\x03")
	s.press("echo status-$?\n")
	s.sees("status-130\n")
}
