// Package faultproxy is a TCP proxy for tests that breaks the connections it
// carries in the ways a network does.
package faultproxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy forwards the connections that it accepts on a loopback address until
// it is told to break them. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	// mu guards the fields below; nothing blocks under it.
	mu      sync.Mutex
	links   map[*link]struct{}
	refuses bool
	closed  bool
}

// Start returns a proxy to target, host:port, that lives until the test ends.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{listener: listener, target: target, links: make(map[*link]struct{})}
	p.work.Go(p.accept) // ends when close closes the listener; close waits
	t.Cleanup(p.close)
	return p
}

// Addr is the address to connect to instead of the target's.
func (p *Proxy) Addr() *net.TCPAddr { return p.listener.Addr().(*net.TCPAddr) }

// Swallow drops what arrives from either side from now on, on the connections
// of now, and keeps their sockets open: a half-open link.
func (p *Proxy) Swallow() { p.each((*link).swallow) }

// Reset ends the connections of now with a RST to both sides.
func (p *Proxy) Reset() { p.each((*link).reset) }

// Cut ends the connections of now with a FIN to both sides.
func (p *Proxy) Cut() { p.each((*link).cut) }

// RefuseNew closes each new connection at once, or accepts them again. Those of
// now stay.
func (p *Proxy) RefuseNew(refuse bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuses = refuse
}

func (p *Proxy) each(f func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		f(l)
	}
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.carry(client.(*net.TCPConn)) }) // ends with its connection; close waits
	}
}

func (p *Proxy) carry(client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	if p.isRefusing() {
		return
	}
	server, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	l := &link{client: client, server: server.(*net.TCPConn)}
	if !p.add(l) {
		l.cut()
		return
	}
	defer p.remove(l)
	var directions sync.WaitGroup
	directions.Go(func() { l.forward(l.client, l.server) })
	directions.Go(func() { l.forward(l.server, l.client) })
	directions.Wait()
}

func (p *Proxy) isRefusing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.refuses
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Cut()
	p.work.Wait()
}

// link is one connection that is carried.
type link struct {
	client, server *net.TCPConn

	mu        sync.Mutex // guards swallows
	swallows  bool
	closeOnce sync.Once
}

// forward copies until a side ends, then ends both.
func (l *link) forward(to, from *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !l.isSwallowing() {
			if _, err := to.Write(buf[:n]); err != nil {
				break
			}
		}
		if err != nil {
			if l.isSwallowing() && errors.Is(err, io.EOF) {
				return // a swallowed FIN; cut ends the other direction
			}
			break
		}
	}
	l.cut()
}

func (l *link) swallow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.swallows = true
}

func (l *link) isSwallowing() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.swallows
}

func (l *link) reset() {
	_ = l.client.SetLinger(0)
	_ = l.server.SetLinger(0)
	l.cut()
}

func (l *link) cut() {
	l.closeOnce.Do(func() {
		_ = l.client.Close()
		_ = l.server.Close()
	})
}
