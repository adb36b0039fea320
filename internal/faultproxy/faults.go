package faultproxy

import "time"

// Swallow drops what arrives from either side from now on, on the connections
// of now, and keeps their sockets open: a half-open link.
func (p *Proxy) Swallow() {
	p.each(func(l *link) {
		l.swallow(ToServer)
		l.swallow(ToClient)
	})
}

// SwallowOnly is Swallow for one direction: with ToClient the server does what
// it is asked to, and nobody hears of it.
func (p *Proxy) SwallowOnly(d Direction) { p.each(func(l *link) { l.swallow(d) }) }

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

// HangNew accepts each new connection and never answers on it, or carries new
// ones again. To the client that is a firewall that drops packets, or a host
// that is out of memory. The connections of now stay.
func (p *Proxy) HangNew(hang bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hangs = hang
}

// Delay holds back what goes in one direction, the end of a connection
// included, for a duration from now on, or no more if it is zero. What is held
// back already is so for the new duration. The order is kept.
func (p *Proxy) Delay(d Direction, duration time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delays[d] = duration
	for l := range p.links {
		l.hold(d, duration)
	}
}

// CutIdle cuts, from now on, each connection that has carried nothing in either
// direction for so long, as address translation does; zero ends that.
func (p *Proxy) CutIdle(after time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.idle = after
	for l := range p.links {
		l.limitIdle(after)
	}
}

func (p *Proxy) each(f func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		f(l)
	}
}
