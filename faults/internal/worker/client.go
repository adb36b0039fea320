//go:build unix

package worker

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
	"github.com/pgadvisory/pgadvisory/fencing"
)

// client is one goroutine of a worker and its choices.
type client struct {
	*process
	rand *rand.Rand
}

func (p *process) newClient(number int) *client {
	stream := uint64(p.Segment)<<40 | uint64(p.Worker)<<24 | uint64(p.Life)<<8 | uint64(number)
	return &client{process: p, rand: rand.New(rand.NewPCG(p.Seed, stream))}
}

// between is a duration of the client's choice.
func (c *client) between(shortest, longest time.Duration) time.Duration {
	return shortest + time.Duration(c.rand.Int64N(int64(longest-shortest)+1))
}

func (c *client) chance(percent int) bool { return c.rand.IntN(100) < percent }

func (c *client) anyKey() string {
	n := c.rand.IntN(len(c.Keys) + len(c.Leased))
	if n < len(c.Keys) {
		return c.Keys[n]
	}
	return c.Leased[n-len(c.Keys)]
}

// isLeased reports whether a key is locked in Redis.
func (c *client) isLeased(key string) bool { return slices.Contains(c.Leased, key) }

// fencerOf is the fencer of a key.
func (c *client) fencerOf(key string) *fencing.Fencer {
	if c.isLeased(key) {
		return c.over
	}
	return c.fencer
}

// hold takes keys and writes, until ctx ends.
func (c *client) hold(ctx context.Context) {
	for ctx.Err() == nil {
		if c.Flaw == CarelessUnlock {
			c.holdCarelessly(ctx)
		} else {
			c.holdOnce(ctx)
		}
		pause(ctx, c.between(0, 10*time.Millisecond))
	}
}

// holdOnce asks for a key in one of the ways there are.
func (c *client) holdOnce(ctx context.Context) {
	limit := c.between(50*time.Millisecond, 1500*time.Millisecond)
	if c.chance(15) {
		limit = c.between(0, 15*time.Millisecond) // it may end just when the lock is granted
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	g := c.begin("", c.anyKey())
	fencer := c.fencerOf(g.key)
	g.limit = limit
	switch n := c.rand.IntN(100); {
	case n < 40:
		g.how = "Lock"
		g.ask()
		g.keep(fencer.Lock(ctx, g.key))
	case n < 60:
		g.how = "TryLock"
		g.ask()
		g.keep(fencer.TryLock(ctx, g.key))
	case n < 75:
		g.how = "Do"
		g.ask()
		g.ended(fencer.Do(ctx, g.key, g.inside))
	case n < 85:
		g.how = "TryDo"
		g.ask()
		g.ended(fencer.TryDo(ctx, g.key, g.inside))
	default:
		g.how = "Lead"
		g.ask()
		(&campaign{current: g}).lead(ctx)
	}
}

// grant is one call for a key and the hold that may come of it.
type grant struct {
	*client
	op, key, how string
	limit        time.Duration
	held         bool
}

func (c *client) begin(how, key string) *grant {
	return &grant{client: c, op: c.nextOp(), key: key, how: how}
}

func (g *grant) ask() {
	g.tell(history.Event{Kind: history.LockBegin, Op: g.op, Key: g.key, How: g.how, Limit: g.limit})
}

// keep is for the calls that return a lease.
func (g *grant) keep(lease *fencing.Lease, err error) {
	if err != nil {
		g.refused(err)
		return
	}
	g.granted(lease)
	g.work(lease)
	g.unlocking()
	g.ended(lease.Unlock(context.Background()))
}

// inside is what Do calls.
func (g *grant) inside(_ context.Context, lease *fencing.Lease) error {
	g.granted(lease)
	g.work(lease)
	g.unlocking()
	return nil
}

func (g *grant) granted(lease *fencing.Lease) {
	g.held = true
	g.tell(history.Event{
		Kind: history.LockEnd, Op: g.op, Key: g.key, How: g.how, Outcome: history.OK,
		Token: int64(lease.Token()), PID: lease.BackendPID(), Redis: g.isLeased(g.key),
	})
	// Ends with the lease.
	g.process.work.Go(func() {
		<-lease.Done()
		g.tell(history.Event{Kind: history.Done, Op: g.op, Key: g.key, Lost: errors.Is(lease.Err(), advisory.ErrLost)})
	})
}

func (g *grant) refused(err error) {
	g.tell(history.Event{Kind: history.LockEnd, Op: g.op, Key: g.key, How: g.how, Outcome: history.Failed, Err: brief(err)})
}

func (g *grant) unlocking() { g.tell(history.Event{Kind: history.Unlock, Op: g.op, Key: g.key}) }

// ended is called with what the unlock returned, or, if there was no grant, the
// call.
func (g *grant) ended(err error) {
	if !g.held {
		g.refused(err)
		return
	}
	e := history.Event{Kind: history.UnlockEnd, Op: g.op, Key: g.key, Outcome: history.OK}
	if err != nil {
		e.Outcome, e.Err = history.Failed, brief(err)
	}
	g.tell(e)
}

// work writes a few times, and often goes on when the lock is lost: as a program
// does that has not looked.
func (g *grant) work(lease *fencing.Lease) {
	stubborn, times := g.chance(60), 1+g.rand.IntN(4)
	if g.Habit == LostBeforeDraw {
		times = 12 // while another may come late with a draw
	}
	for range times {
		switch {
		case lease.Err() == nil:
			// go on
		case g.Habit == Persistent:
			g.writeOn(lease)
			return
		case !stubborn:
			return
		}
		if g.write(lease) == history.Unknown && g.Habit == NoHabit {
			// That commit may still come, and who writes again with the same token
			// overtakes it. The next grant waits for it.
			return
		}
		pause(context.Background(), g.between(0, 12*time.Millisecond))
	}
	if g.Habit == Lingering {
		g.linger(lease)
	}
	if lease.Err() != nil && stubborn {
		// By now another may well hold the key.
		pause(context.Background(), g.between(0, 200*time.Millisecond))
		g.write(lease)
	}
}

// linger is what [Lingering] is.
func (g *grant) linger(lease *fencing.Lease) {
	select {
	case <-lease.Done():
	case <-time.After(callLimit):
	}
}

// writeOn is what [Persistent] is.
func (g *grant) writeOn(lease *fencing.Lease) {
	for range 12 {
		g.write(lease)
		pause(context.Background(), 5*time.Millisecond)
	}
}

// brief is what a history needs of an error.
func brief(err error) string {
	const longest = 200
	text := err.Error()
	if len(text) > longest {
		text = text[:longest] + "…"
	}
	return text
}
