//go:build unix

package supervise

import (
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// watchdogLimit bounds the wait for an answer.
const watchdogLimit = 10 * time.Second

// Group is a process group with a watchdog. It is for one Run.
type Group struct {
	id       int // of the group, and of the watchdog
	watchdog *net.UnixConn
	gone     bool // the watchdog has ended and was reaped
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
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer func() { _ = syscall.Close(theirs) }()
	conn, err := unixConn(ours)
	if err != nil {
		return nil, err
	}
	pid, err := syscall.ForkExec(self, []string{watchdogName}, &syscall.ProcAttr{
		Dir:   "/",
		Env:   []string{watchdogVar + "=1"},
		Files: []uintptr{null.Fd(), null.Fd(), null.Fd(), uintptr(theirs)}, // the last is orders
		Sys:   &syscall.SysProcAttr{Setpgid: true},
	})
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return &Group{id: pid, watchdog: conn}, nil
}

// socketPair returns two ends that no other process inherits.
func socketPair() (ours, theirs int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return -1, -1, err
	}
	syscall.CloseOnExec(pair[0])
	syscall.CloseOnExec(pair[1])
	return pair[0], pair[1], nil
}

// Hold has the watchdog keep a connection open for as long as it lives, in the
// place of one that it was given before. It goes when the group is empty: until
// then the server takes the session for alive, also when this process was killed
// or has closed its own end.
func (g *Group) Hold(conn syscall.Conn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Control(func(fd uintptr) {
		_, _, sent = g.watchdog.WriteMsgUnix([]byte{hold}, syscall.UnixRights(int(fd)), nil)
	})
	if err == nil {
		err = sent
	}
	if err != nil {
		return fmt.Errorf("hand the connection to the watchdog: %w", err)
	}
	return nil
}

// awaitReady returns once no signal but SIGKILL ends the watchdog.
func (g *Group) awaitReady() error {
	if err := g.expect(ready); err != nil {
		return fmt.Errorf("the watchdog does not answer: %w", err)
	}
	return nil
}

func (g *Group) order(word byte) error {
	_, err := g.watchdog.Write([]byte{word})
	return err
}

func (g *Group) expect(word byte) error {
	if err := g.watchdog.SetReadDeadline(time.Now().Add(watchdogLimit)); err != nil {
		return err
	}
	got := make([]byte, 1)
	if _, err := g.watchdog.Read(got); err != nil {
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
	_ = g.watchdog.Close()
}
