package faultproxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A Direction is one of the two that bytes go on a connection.
type Direction int

// The directions, by where the bytes go.
const (
	ToServer Direction = iota
	ToClient
)

// link is one connection that is carried.
type link struct {
	client, server *net.TCPConn // server is nil if the link leads nowhere

	done      chan struct{} // closed by cut
	closeOnce sync.Once

	mu        sync.Mutex // guards the fields below; nothing blocks under it
	swallows  [2]bool
	delays    [2]time.Duration
	changed   chan struct{} // closed when the delays change
	idleAfter time.Duration
	idle      *time.Timer // nil without a limit; runs cut
}

// forward copies in one direction until a side ends, then ends both.
func (l *link) forward(d Direction) {
	from, to := l.client, l.server
	if d == ToClient {
		from, to = l.server, l.client
	}
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		l.touch()
		l.wait(d)
		if n > 0 && !l.isSwallowing(d) {
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			if l.isSwallowing(d) && errors.Is(err, io.EOF) {
				return // a swallowed FIN; cut ends the other direction
			}
			break
		}
	}
	l.cut()
}

// wait returns when the delay of a direction is over, or has been changed to one
// that is, or the link.
func (l *link) wait(d Direction) {
	for start := time.Now(); ; {
		l.mu.Lock()
		delay, changed := l.delays[d], l.changed
		l.mu.Unlock()
		rest := delay - time.Since(start)
		if delay == 0 || rest <= 0 {
			return
		}
		timer := time.NewTimer(rest)
		select {
		case <-timer.C:
		case <-changed:
		case <-l.done:
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

func (l *link) hold(d Direction, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delays[d] = delay
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) swallow(d Direction) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.swallows[d] = true
}

func (l *link) isSwallowing(d Direction) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.swallows[d]
}

// limitIdle sets the time without traffic after which the link is cut.
func (l *link) limitIdle(after time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle != nil {
		l.idle.Stop()
		l.idle = nil
	}
	if after > 0 {
		l.idleAfter, l.idle = after, time.AfterFunc(after, l.cut)
	}
}

// touch notes that there was traffic.
func (l *link) touch() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.idle != nil {
		l.idle.Reset(l.idleAfter)
	}
}

func (l *link) reset() {
	_ = l.client.SetLinger(0)
	if l.server != nil {
		_ = l.server.SetLinger(0)
	}
	l.cut()
}

func (l *link) cut() {
	l.closeOnce.Do(func() {
		close(l.done)
		_ = l.client.Close()
		if l.server != nil {
			_ = l.server.Close()
		}
	})
}
