//go:build unix

package nemesis

import (
	"context"
	"fmt"

	"github.com/pgadvisory/pgadvisory/faults/internal/fleet"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
	"github.com/pgadvisory/pgadvisory/faults/internal/worker"
)

func (n *Nemesis) pause(ctx context.Context, a Action) error {
	m, _ := n.target(ctx, a)
	return frozen(m, func() error {
		n.struck(a, history.Now(), history.Event{Worker: m.Number()})
		pause(ctx, a.For)
		return nil
	})
}

// frozen does something while a process is stopped.
func frozen(m *fleet.Member, do func() error) error {
	if err := m.Freeze(); err != nil {
		return err
	}
	err := do()
	if thawErr := m.Thaw(); err == nil {
		err = thawErr
	}
	return err
}

// usurp ends only the session that holds, or deletes the key in Redis, so that a transaction
// of the holder can go on when it has been superseded.
func (n *Nemesis) usurp(ctx context.Context, a Action) error {
	m, _ := n.target(ctx, a)
	return frozen(m, func() error {
		// It may have got the key, or lost it, before it was stopped.
		hold, ok := n.Log.Holder(a.Key)
		if !ok || hold.Worker != m.Number() {
			n.struck(a, history.Now(), history.Event{Worker: m.Number()})
			pause(ctx, a.For)
			return nil
		}
		from, since := n.Log.Len(), history.Now()
		if err := n.takeAway(ctx, hold); err != nil {
			return err
		}
		n.struck(a, since, history.Event{Worker: m.Number(), PID: hold.PID, Redis: hold.Redis, Only: hold.Redis, Severs: true})
		n.awaitTakeover(ctx, from, a, m.Number())
		return nil
	})
}

// takeAway ends a hold on the server.
func (n *Nemesis) takeAway(ctx context.Context, hold history.Event) error {
	if hold.Redis {
		return n.Arena.Redis.Lose(ctx, hold.Key)
	}
	return n.terminateBackend(ctx, hold.PID)
}

func (n *Nemesis) pauseCut(ctx context.Context, a Action) error {
	m, _ := n.target(ctx, a)
	return frozen(m, func() error {
		from, since := n.Log.Len(), history.Now()
		m.Proxy.Cut()
		n.struck(a, since, history.Event{Worker: m.Number(), Severs: true})
		n.awaitTakeover(ctx, from, a, m.Number())
		return nil
	})
}

func (n *Nemesis) kill(ctx context.Context, a Action) error {
	m, _ := n.target(ctx, a)
	since := history.Now()
	if err := m.Kill(); err != nil {
		return err
	}
	n.struck(a, since, history.Event{Worker: m.Number(), Severs: true})
	n.Log.Add(history.Event{Time: history.Now(), Kind: history.Death, Worker: m.Number(), Life: m.Life(), Since: since})
	pause(ctx, a.For)
	return m.Respawn()
}

func (n *Nemesis) hog(ctx context.Context, a Action) error {
	m, _ := n.target(ctx, a)
	since := history.Now()
	if err := m.Tell(fmt.Sprintf("%s %s", worker.OrderHog, a.For)); err != nil {
		return err
	}
	n.struck(a, since, history.Event{Worker: m.Number()})
	pause(ctx, a.For)
	return nil
}
