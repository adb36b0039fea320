//go:build unix

package nemesis

import (
	"context"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
)

// onLink does something to the connections of one worker and lets it be for a
// while.
func (n *Nemesis) onLink(ctx context.Context, a Action, severs bool, do, undo func(*faultproxy.Proxy)) {
	m, _ := n.target(ctx, a)
	since := history.Now()
	do(m.Proxy)
	n.struck(a, since, history.Event{Worker: m.Number(), Severs: severs})
	pause(ctx, a.For)
	undo(m.Proxy)
}

func nothing(*faultproxy.Proxy) {}

func (n *Nemesis) cut(ctx context.Context, a Action) error {
	a.For = 0
	n.onLink(ctx, a, true, (*faultproxy.Proxy).Cut, nothing)
	return nil
}

func (n *Nemesis) reset(ctx context.Context, a Action) error {
	a.For = 0
	n.onLink(ctx, a, true, (*faultproxy.Proxy).Reset, nothing)
	return nil
}

// halfOpen leaves both sides in the dark, and lets the server know only later: it
// keeps the lock so long.
func (n *Nemesis) halfOpen(ctx context.Context, a Action) error {
	a.For += silence
	n.onLink(ctx, a, true, (*faultproxy.Proxy).Swallow, (*faultproxy.Proxy).Cut)
	return nil
}

func (n *Nemesis) mute(ctx context.Context, a Action) error {
	a.For += silence
	n.onLink(ctx, a, true, swallow(faultproxy.ToServer), (*faultproxy.Proxy).Cut)
	return nil
}

func (n *Nemesis) deaf(ctx context.Context, a Action) error {
	a.For += silence
	n.onLink(ctx, a, true, swallow(faultproxy.ToClient), (*faultproxy.Proxy).Cut)
	return nil
}

func swallow(d faultproxy.Direction) func(*faultproxy.Proxy) {
	return func(p *faultproxy.Proxy) { p.SwallowOnly(d) }
}

func (n *Nemesis) refuse(ctx context.Context, a Action) error {
	n.onLink(ctx, a, true, func(p *faultproxy.Proxy) {
		p.RefuseNew(true)
		p.Cut()
	}, func(p *faultproxy.Proxy) { p.RefuseNew(false) })
	return nil
}

func (n *Nemesis) hang(ctx context.Context, a Action) error {
	n.onLink(ctx, a, true, func(p *faultproxy.Proxy) {
		p.HangNew(true)
		p.Cut()
	}, func(p *faultproxy.Proxy) {
		p.HangNew(false)
		p.Cut()
	})
	return nil
}

// lag makes all links slow, or as they were.
func (n *Nemesis) lag(d time.Duration) {
	for _, m := range n.Fleet.Members {
		delay(m.Proxy, d)
	}
}

func delay(p *faultproxy.Proxy, d time.Duration) {
	p.Delay(faultproxy.ToServer, d)
	p.Delay(faultproxy.ToClient, d)
}

func (n *Nemesis) slow(ctx context.Context, a Action) error {
	n.onLink(ctx, a, false,
		func(p *faultproxy.Proxy) { delay(p, a.For/10) }, // to each side, far from what counts as silence
		func(p *faultproxy.Proxy) { delay(p, 0) })
	return nil
}
