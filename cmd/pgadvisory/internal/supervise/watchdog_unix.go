//go:build unix

package supervise

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

const (
	// watchdogVar tells a process that it is a watchdog.
	watchdogVar = "PGADVISORY_WATCHDOG"
	// watchdogName is what process lists show. It is not the command's own, so
	// that who kills pgadvisory by its name doesn't kill the watchdog first.
	watchdogName = "pg-adv-watchdog"

	watchdogLimit = 10 * time.Second
)

// The words on the pipes to and from the watchdog, a byte each.
const (
	ready = 'r' // from it: signals don't end it
	leave = 'l' // to it, and back: it leaves the group, so that it can be seen who is left
)

// Main plays the watchdog if this process was started as one, and exits then. It
// comes first in main.
func Main() {
	if os.Getenv(watchdogVar) == "" {
		return
	}
	signal.Ignore() // whatever the group is sent
	nameProcess(watchdogName)
	watch(os.NewFile(3, "orders"), os.NewFile(4, "answers"), os.Getpid(), os.Getppid())
	os.Exit(0)
}

// watch waits for the end of parent, which has the other ends of both pipes.
func watch(orders, answers *os.File, group, parent int) {
	answer := func(word byte) { _, _ = answers.Write([]byte{word}) }
	answer(ready)
	word := make([]byte, 1)
	for {
		switch n, _ := orders.Read(word); {
		case n == 0:
			_ = syscall.Kill(-group, syscall.SIGKILL)
			return
		case word[0] == leave:
			if pgid, err := syscall.Getpgid(parent); err != nil || syscall.Setpgid(0, pgid) != nil {
				answer('?')
				continue
			}
			answer(leave)
		}
	}
}

// Group is a process group with a watchdog. It is for one Run.
type Group struct {
	id      int // of the group, and of the watchdog
	orders  *os.File
	answers *os.File
	gone    bool // the watchdog has ended and was reaped
}

// NewGroup starts the watchdog. The caller must close the Group.
func NewGroup() (*Group, error) {
	g, err := startWatchdog()
	if err != nil {
		return nil, fmt.Errorf("start the watchdog: %w", err)
	}
	return g, nil
}

func startWatchdog() (*Group, error) {
	self, err := selfPath()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = null.Close() }()
	ordersIn, orders, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = ordersIn.Close() }()
	answers, answersOut, err := os.Pipe()
	if err != nil {
		_ = orders.Close()
		return nil, err
	}
	defer func() { _ = answersOut.Close() }()
	pid, err := syscall.ForkExec(self, []string{watchdogName}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{watchdogVar + "=1"},
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), ordersIn.Fd(), answersOut.Fd()},
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		_, _ = orders.Close(), answers.Close()
		return nil, err
	}
	return &Group{id: pid, orders: orders, answers: answers}, nil
}

// awaitReady returns once no signal but SIGKILL ends the watchdog.
func (g *Group) awaitReady() error {
	if err := g.expect(ready); err != nil {
		return fmt.Errorf("the watchdog does not answer: %w", err)
	}
	return nil
}

func (g *Group) order(word byte) error {
	_, err := g.orders.Write([]byte{word})
	return err
}

func (g *Group) expect(word byte) error {
	if err := g.answers.SetReadDeadline(time.Now().Add(watchdogLimit)); err != nil {
		return err
	}
	got := make([]byte, 1)
	if _, err := g.answers.Read(got); err != nil {
		return err
	}
	if got[0] != word {
		return fmt.Errorf("it says %q and not %q", got[0], word)
	}
	return nil
}

// Close kills what is in the group, ends the watchdog and returns when that is
// gone.
func (g *Group) Close() {
	if !g.gone { // or else the numbers may be another's
		_ = syscall.Kill(-g.id, syscall.SIGKILL)
		_ = syscall.Kill(g.id, syscall.SIGKILL)
	}
	for !g.gone {
		_, err := syscall.Wait4(g.id, nil, 0, nil)
		g.gone = err != syscall.EINTR
	}
	_, _ = g.orders.Close(), g.answers.Close()
}
