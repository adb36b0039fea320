//go:build unix

package nemesis

import (
	"context"
	"errors"

	"github.com/pgadvisory/pgadvisory/faults/internal/fleet"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

func (n *Nemesis) switchOver(ctx context.Context, a Action) error {
	if err := n.Arena.Follow(ctx); err != nil {
		return err
	}
	since := history.Now()
	if err := n.Arena.Switch(ctx); err != nil {
		return err
	}
	return n.retarget(n.promoted(ctx, a, history.Event{Since: since}))
}

// failOver lets the workers go on for a while after the standby does not follow
// any more, so that there is something to lose.
func (n *Nemesis) failOver(ctx context.Context, a Action) error {
	var since history.Time
	safe, err := n.Arena.FailOver(ctx, func() {
		pause(ctx, a.For)
		since = history.Now()
	})
	if err != nil {
		return err
	}
	return n.retarget(n.promoted(ctx, a, history.Event{Since: since, Lossy: true, Safe: safe}))
}

// forget has a process superseded while it is stopped, by a grant that the new
// primary knows nothing of, and lets it be the first to go on there.
func (n *Nemesis) forget(ctx context.Context, a Action) error {
	if err := n.Arena.Follow(ctx); err != nil { // which takes its time
		return err
	}
	var loser *fleet.Member
	var since history.Time
	var failed error
	safe, err := n.Arena.FailOver(ctx, func() {
		loser, failed = n.supersede(ctx, a)
		since = history.Now()
	})
	if loser != nil {
		defer func() { _ = loser.Thaw() }() // if something went wrong
	}
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	addr, err := n.promoted(ctx, a, history.Event{Since: since, Lossy: true, Safe: safe})
	if err != nil {
		return err
	}
	loser.Proxy.Retarget(addr)
	if err := loser.Thaw(); err != nil {
		return err
	}
	pause(ctx, a.For)
	return n.retarget(addr, nil)
}

// attempts is how often supersede tries.
const attempts = 4

// supersede stops the holder of the key, ends its session and waits until another
// has the key. It does so again with the next holder if nobody gets it: a
// transaction may be open. It returns whom it has stopped last.
func (n *Nemesis) supersede(ctx context.Context, a Action) (m *fleet.Member, err error) {
	for i := range attempts {
		if i > 0 {
			if err := m.Thaw(); err != nil {
				return nil, err
			}
		}
		m, _ = n.target(ctx, a)
		if err := m.Freeze(); err != nil {
			return nil, err
		}
		hold, ok := n.Log.Holder(a.Key)
		if !ok || hold.Worker != m.Number() {
			continue
		}
		from, since := n.Log.Len(), history.Now()
		if err := n.terminateBackend(ctx, hold.PID); err != nil {
			return m, err
		}
		n.struck(Action{Kind: Usurp, Key: a.Key}, since, history.Event{Worker: m.Number(), PID: hold.PID, Severs: true})
		if n.awaitTakeover(ctx, from, a, m.Number()) {
			break
		}
	}
	return m, nil
}

// promoted notes what the new primary has, before any worker is let in, and
// returns its address.
func (n *Nemesis) promoted(ctx context.Context, a Action, promotion history.Event) (addr string, err error) {
	contents, err := n.Arena.Contents(ctx, n.Segment)
	if err != nil {
		return "", err
	}
	promotion.Time, promotion.Kind, promotion.Era = history.Now(), history.Promotion, contents[0].Era
	n.Log.Add(promotion)
	for _, content := range contents {
		n.Log.Add(content)
	}
	n.struck(a, promotion.Since, history.Event{Severs: true})
	return n.Arena.Addr()
}

// retarget lets all workers in.
func (n *Nemesis) retarget(addr string, err error) error {
	if err == nil {
		n.Fleet.Retarget(addr)
	}
	return err
}
