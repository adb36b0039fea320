package faultproxy

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Proxy forwards the connections that it accepts on a loopback address until
// it is told to break them. It is safe for concurrent use.
type Proxy struct {
	listener net.Listener
	work     sync.WaitGroup

	// mu guards the fields below and is taken before a link's; nothing blocks
	// under it.
	mu      sync.Mutex
	target  string
	links   map[*link]struct{}
	refuses bool
	hangs   bool
	delays  [2]time.Duration
	idle    time.Duration
	closed  bool
}

// Start returns a proxy to target, host:port, that lives until the test ends.
func Start(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := Listen(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Listen is Start for what is not a test, and for who calls [Proxy.Close].
func Listen(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, links: make(map[*link]struct{})}
	p.work.Go(p.accept) // ends when Close closes the listener; Close waits
	return p, nil
}

// Addr is the address to connect to instead of the target's.
func (p *Proxy) Addr() *net.TCPAddr { return p.listener.Addr().(*net.TCPAddr) }

// Retarget sends the connections to come to another target; those of now stay.
func (p *Proxy) Retarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.carry(client.(*net.TCPConn)) }) // ends with its connection; Close waits
	}
}

func (p *Proxy) carry(client *net.TCPConn) {
	defer func() { _ = client.Close() }()
	p.mu.Lock()
	refuses, hangs, target := p.refuses, p.hangs, p.target
	p.mu.Unlock()
	if refuses {
		return
	}
	l := &link{client: client, done: make(chan struct{}), changed: make(chan struct{})}
	if !hangs {
		server, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		l.server = server.(*net.TCPConn)
	}
	defer l.cut()
	if !p.add(l) {
		return
	}
	defer p.remove(l)
	if hangs {
		_, _ = io.Copy(io.Discard, client) // until either the client or cut ends it
		return
	}
	var directions sync.WaitGroup
	directions.Go(func() { l.forward(ToServer) }) // both end with the link; awaited below
	directions.Go(func() { l.forward(ToClient) })
	directions.Wait()
}

func (p *Proxy) add(l *link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	for d, delay := range p.delays {
		l.hold(Direction(d), delay)
	}
	l.limitIdle(p.idle)
	p.links[l] = struct{}{}
	return true
}

func (p *Proxy) remove(l *link) {
	l.limitIdle(0)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.links, l)
}

// Close ends all connections and waits for that. Nothing is accepted any more.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	_ = p.listener.Close()
	p.Cut()
	p.work.Wait()
}
