//go:build unix

package worker

import (
	"context"
	"errors"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// campaign is one call of Lead, which may have several terms. To the history
// each is a grant of its own, asked for when the one before it has ended.
type campaign struct {
	current *grant // asked for or held
	last    *grant // the term before
}

// errEnough makes Lead return from a term that was not lost.
var errEnough = errors.New("enough")

func (c *campaign) lead(ctx context.Context) {
	err := c.current.fencerOf(c.current.key).Lead(ctx, c.current.key, c.term)
	switch {
	case c.last == nil:
		c.current.refused(err)
	case err == nil:
		c.last.ended(nil) // held until the unlock
	}
	// Else nobody learns what the unlock said.
}

func (c *campaign) term(_ context.Context, lease *fencing.Lease) error {
	g := c.current
	g.granted(lease)
	g.work(lease)
	g.unlocking()
	c.last, c.current = g, g.begin(g.how, g.key)
	c.current.ask()
	if g.chance(50) {
		return nil
	}
	return errEnough
}
