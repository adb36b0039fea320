//go:build unix

package supervise

import (
	"errors"
	"net"
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
	// orders is the watchdog's end of the socket pair.
	orders = 3
	// sweepInterval is how often, at most, a watchdog looks for what it can't kill.
	sweepInterval = time.Second
)

// The words between this process and the watchdog, a byte each.
const (
	ready = 'r' // from it: signals don't end it
	leave = 'l' // to it, and back: it leaves the group, so that it can be seen who is left
	hold  = 'h' // to it, with a file descriptor: it keeps this connection open until its end
)

// Main plays the watchdog if this process was started as one, and exits then. It
// comes first in main.
func Main() {
	if os.Getenv(watchdogVar) == "" {
		return
	}
	signal.Ignore() // whatever the group is sent
	nameProcess(watchdogName)
	w := &watchdog{group: os.Getpid(), held: -1}
	w.home, _ = syscall.Getpgid(os.Getppid())
	if conn, err := unixConn(orders); err == nil {
		w.serve(conn)
	}
	w.end()
	os.Exit(0)
}

// watchdog leads a group and ends it when this process has ended.
type watchdog struct {
	group int
	home  int // the group of the process that has started it
	held  int // a connection's file descriptor, or -1
}

// serve returns when the other end of conn was closed, which the kernel does when
// that process ends.
func (w *watchdog) serve(conn *net.UnixConn) {
	answer := func(word byte) { _, _ = conn.Write([]byte{word}) }
	answer(ready)
	word, rights := make([]byte, 1), make([]byte, syscall.CmsgSpace(4))
	for {
		n, rightsLen, _, _, err := conn.ReadMsgUnix(word, rights)
		switch {
		case err != nil || n == 0:
			return
		case word[0] == hold:
			w.hold(rights[:rightsLen])
		case word[0] == leave && w.leave():
			answer(leave)
		default:
			answer('?')
		}
	}
}

// hold keeps a connection open, in the place of one that it held before. While
// it is open the server does not free the lock.
func (w *watchdog) hold(rights []byte) {
	messages, err := syscall.ParseSocketControlMessage(rights)
	if err != nil || len(messages) == 0 {
		return
	}
	fds, err := syscall.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return
	}
	if w.held >= 0 {
		_ = syscall.Close(w.held)
	}
	w.held = fds[0]
}

// leave moves the watchdog to the group that it came from. There may be none: a
// process whose group is in another PID namespace sees it as 0.
func (w *watchdog) leave() bool { return w.home > 0 && syscall.Setpgid(0, w.home) == nil }

// end kills the group, and returns when nobody is left in it. Who has changed its
// user ids can't be killed: the connection, and with it the lock, is held until
// that one has ended by itself.
func (w *watchdog) end() {
	if w.leave() {
		_ = syscall.Kill(-w.group, syscall.SIGKILL)
	}
	for pause := pollInterval; ; pause = min(2*pause, sweepInterval) {
		left, ok := members(w.group, os.Getpid())
		if !ok || len(left) == 0 {
			break
		}
		for _, m := range left {
			m.kill(w.group)
		}
		<-time.After(pause)
	}
	_ = syscall.Kill(-w.group, syscall.SIGKILL) // this process too, if it could not leave
}

// unixConn makes a connection of a socket, whose number is used up.
func unixConn(fd int) (*net.UnixConn, error) {
	file := os.NewFile(uintptr(fd), "watchdog")
	defer func() { _ = file.Close() }()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	unix, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, errors.New("not a Unix socket")
	}
	return unix, nil
}
