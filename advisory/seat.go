package advisory

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// startDelay is how long a session may idle before its watch begins to read. Most
// locks of a busy program are gone by then.
const startDelay = 5 * time.Millisecond

// seat is a session that holds locks: watched while it idles, and used by one at
// a time, who has the turn. Whoever takes the turn finds the session watched and
// must leave it watched, or end it.
type seat struct {
	hold   *connhold.Hold
	way    *way
	before string // the application_name
	pid    uint32
	addr   net.Addr // of the server
	limits connhold.Limits
	lost   func(*connhold.Loss)
	broken func(*connhold.Loss) // the same, while a transaction has the turn
	turn   chan struct{}        // a token in it: somebody has the turn
	wanted atomic.Int32         // how many wait for it

	// mu guards the field below, and whether it is nil orders the end of a transaction
	// against what ends the session under it. Nothing blocks under it.
	mu sync.Mutex
	tx *txRun // nil unless a transaction has the turn
}

// txRun is one transaction of a seat.
type txRun struct{ broken *connhold.Loss } // why the session was ended under it

// newSeat makes a seat of what a contest has won. It is not watched yet. lost is
// called if the session dies, without the turn, and broken if it was ended under a
// transaction, which still has the turn.
func (l *Locker) newSeat(c *contest, lost, broken func(*connhold.Loss)) *seat {
	s := &seat{
		hold: c.hold, way: c.way, before: c.application, pid: c.known.pid, addr: c.hold.RemoteAddr(), lost: lost, broken: broken,
		limits: connhold.Limits{Heartbeat: l.config.Heartbeat, Timeout: l.config.HeartbeatTimeout, StartDelay: startDelay},
		turn:   make(chan struct{}, 1),
	}
	if s.pid != s.hold.PID() { // a pooler is in between
		s.limits.Backend, s.lost = s.pid, l.lostBehindPooler(lost)
	}
	return s
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

// enter notes that a transaction has the turn from now on.
func (s *seat) enter() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tx = new(txRun)
}

// leave notes the end of that, and returns why the session was ended under it, or nil.
func (s *seat) leave() *connhold.Loss {
	s.mu.Lock()
	defer s.mu.Unlock()
	run := s.tx
	s.tx = nil
	return run.broken
}

// running returns the transaction that has the turn; nil when none has.
func (s *seat) running() *txRun {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tx
}

// breakOff ends the session under a transaction, unless that is over. It reports
// whether this is what ended it.
func (s *seat) breakOff(run *txRun, loss *connhold.Loss) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if run == nil || run != s.tx || run.broken != nil {
		return false
	}
	run.broken = loss
	s.hold.Kill() // the hold can't end before the transaction has left
	return true
}
