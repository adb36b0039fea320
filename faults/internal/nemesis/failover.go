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
	return n.promoted(ctx, a, history.Event{Since: since})
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
	return n.promoted(ctx, a, history.Event{Since: since, Lossy: true, Safe: safe})
}

// forget has a process superseded while it is stopped, by a grant that the new
// primary knows nothing of, and lets it go on there.
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
		defer func() { _ = loser.Thaw() }() // also if something went wrong
	}
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	return n.promoted(ctx, a, history.Event{Since: since, Lossy: true, Safe: safe})
}

// supersede stops the holder of the key, ends its session and waits until another
// has the key. It returns whom it has stopped.
func (n *Nemesis) supersede(ctx context.Context, a Action) (*fleet.Member, error) {
	m, _ := n.target(ctx, a)
	if err := m.Freeze(); err != nil {
		return nil, err
	}
	hold, ok := n.Log.Holder(a.Key)
	if !ok || hold.Worker != m.Number() {
		return m, nil
	}
	from, since := n.Log.Len(), history.Now()
	if err := n.terminateBackend(ctx, hold.PID); err != nil {
		return m, err
	}
	n.struck(a, since, history.Event{Worker: m.Number(), PID: hold.PID, Severs: true})
	n.awaitTakeover(ctx, from, a, m.Number())
	return m, nil
}

// promoted notes what the new primary has, and lets the workers in only then.
func (n *Nemesis) promoted(ctx context.Context, a Action, promotion history.Event) error {
	contents, err := n.Arena.Contents(ctx, n.Segment)
	if err != nil {
		return err
	}
	promotion.Time, promotion.Kind, promotion.Era = history.Now(), history.Promotion, contents[0].Era
	n.Log.Add(promotion)
	for _, content := range contents {
		n.Log.Add(content)
	}
	n.struck(a, promotion.Since, history.Event{Severs: true})
	addr, err := n.Arena.Addr()
	if err != nil {
		return err
	}
	n.Fleet.Retarget(addr)
	return nil
}
