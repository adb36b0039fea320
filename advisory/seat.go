package advisory

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// watchLead is how long a session may idle before its watch begins to read. Most
// locks of a busy program are gone by then.
const watchLead = 5 * time.Millisecond

// seat is a session that holds locks: watched while it idles, and used by one at
// a time, who has the turn. Whoever takes the turn finds the session watched and
// must leave it watched, or end it.
type seat struct {
	hold   *connhold.Hold
	way    *way
	before string // the application_name
	pid    uint32
	limits connhold.Limits
	lost   func(*connhold.Loss)
	turn   chan struct{} // a token in it: somebody has the turn
	wanted atomic.Int32  // how many wait for it
}

// newSeat makes a seat of what a contest has won. It is not watched yet. lost is
// called once if the session dies, without the turn.
func (l *Locker) newSeat(c *contest, lost func(*connhold.Loss)) *seat {
	return &seat{
		hold: c.hold, way: c.way, before: c.application, pid: c.known.pid, lost: lost,
		limits: connhold.Limits{Heartbeat: l.config.Heartbeat, Timeout: l.config.HeartbeatTimeout, Lead: watchLead},
		turn:   make(chan struct{}, 1),
	}
}

// watch has the session watched from now on.
func (s *seat) watch() { s.hold.Watch(s.limits, s.lost) }

// take waits for the turn.
func (s *seat) take(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}: // nearly always
		return nil
	default:
	}
	s.wanted.Add(1)
	defer s.wanted.Add(-1)
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ended(ctx)
	}
}

// takeWithin waits for the turn, and reports false if it does not come in time.
func (s *seat) takeWithin(limit time.Duration) bool {
	select {
	case s.turn <- struct{}{}:
		return true
	default:
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return s.take(ctx) == nil
}

func (s *seat) isWanted() bool { return s.wanted.Load() > 0 }

func (s *seat) pass() { <-s.turn }
