//go:build unix

package nemesis

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/arena"
	"github.com/pgadvisory/pgadvisory/faults/internal/fleet"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
	"github.com/pgadvisory/pgadvisory/internal/stopwatch"
)

const (
	// holderLimit bounds the wait for somebody to hold the key.
	holderLimit = 300 * time.Millisecond
	// takeoverLimit bounds the wait for another to get it. It is not certain that
	// one does: a transaction of the holder may be open.
	takeoverLimit = 700 * time.Millisecond
	// silence is how long a link stays half open: longer than it takes to notice.
	silence = 700 * time.Millisecond
)

// Nemesis does what a plan says. Its methods are for one goroutine.
type Nemesis struct {
	Arena   *arena.Arena
	Fleet   *fleet.Fleet
	Log     *history.Log
	Segment int
	// Patience bounds the time until all is well after a fault, without that in which
	// the machine has other things to do.
	Patience time.Duration
}

// Do does one action, makes it good again and waits until all keys are granted
// and written to again. It reports false if they are not, which is in the history
// then. An error is one of the kit.
func (n *Nemesis) Do(ctx context.Context, a Action) (recovered bool, err error) {
	do, ok := deeds[a.Kind]
	if !ok {
		return false, fmt.Errorf("no kind of fault %q", a.Kind)
	}
	n.lag(a.Lag)
	err = do(n, ctx, a)
	n.lag(0)
	if err != nil {
		return false, fmt.Errorf("%s: %w", a.Kind, err)
	}
	healed := history.Now()
	n.Log.Add(history.Event{Time: healed, Kind: history.Healed, How: string(a.Kind)})
	if !n.awaitRecovery(ctx) {
		return false, ctx.Err()
	}
	n.Log.Add(history.Event{Time: history.Now(), Kind: history.Recovered, How: string(a.Kind), Since: healed})
	return true, nil
}

var deeds = map[Kind]func(*Nemesis, context.Context, Action) error{
	Pause: (*Nemesis).pause, Usurp: (*Nemesis).usurp, PauseCut: (*Nemesis).pauseCut, Kill: (*Nemesis).kill,
	Terminate: (*Nemesis).terminate, Shoot: (*Nemesis).shoot, Cancel: (*Nemesis).cancel, Numb: (*Nemesis).numb,
	Cut: (*Nemesis).cut, Reset: (*Nemesis).reset, HalfOpen: (*Nemesis).halfOpen, Mute: (*Nemesis).mute, Deaf: (*Nemesis).deaf,
	Refuse: (*Nemesis).refuse, Hang: (*Nemesis).hang, Slow: (*Nemesis).slow,
	Fast: (*Nemesis).restartFast, Immediate: (*Nemesis).restartImmediate,
	Switch: (*Nemesis).switchOver, FailOver: (*Nemesis).failOver, Forget: (*Nemesis).forget,
	LockTable: (*Nemesis).fillLockTable, Hog: (*Nemesis).hog,
	RedisKill: (*Nemesis).redisKill, RedisStop: (*Nemesis).redisStop, RedisPause: (*Nemesis).redisPause, RedisFlush: (*Nemesis).redisFlush, RedisDel: (*Nemesis).redisDel,
	RedisCut: (*Nemesis).redisCut, RedisDeaf: (*Nemesis).redisDeaf, RedisLate: (*Nemesis).redisLate,
}

// struck notes that something was done, from since to now.
func (n *Nemesis) struck(a Action, since history.Time, e history.Event) {
	e.Time, e.Kind, e.How, e.Key, e.Since = history.Now(), history.Fault, string(a.Kind), a.Key, since
	n.Log.Add(e)
}

// target is the holder of the action's key, who may come in a moment, or else the
// action's worker.
func (n *Nemesis) target(ctx context.Context, a Action) (m *fleet.Member, hold history.Event) {
	ctx, cancel := context.WithTimeout(ctx, holderLimit)
	defer cancel()
	number := a.Worker
	n.Log.Await(ctx, n.Log.Len(), func(history.Event) bool {
		var ok bool
		if hold, ok = n.Log.Holder(a.Key); ok {
			number = hold.Worker
		}
		return ok
	})
	return n.Fleet.Members[number-1], hold
}

// awaitTakeover waits until the key is granted to another, and reports false if
// it is not.
func (n *Nemesis) awaitTakeover(ctx context.Context, from int, a Action, loser int) bool {
	ctx, cancel := context.WithTimeout(ctx, takeoverLimit)
	defer cancel()
	return n.Log.Await(ctx, from, func(e history.Event) bool {
		return e.Kind == history.LockEnd && e.Outcome == history.OK && e.Key == a.Key && e.Worker != loser
	})
}

// awaitRecovery waits until each key was granted and written to, and each worker
// has read, since now. It reports false, and notes what is not so, if it is not in
// time.
func (n *Nemesis) awaitRecovery(ctx context.Context) bool {
	ctx, cancel := withPatience(ctx, n.Patience)
	defer cancel()
	granted, written, working := make(map[string]bool), make(map[string]bool), make(map[int]bool)
	keys, workers := n.Arena.Keys(), len(n.Fleet.Members)
	if n.Log.Await(ctx, n.Log.Len(), func(e history.Event) bool {
		switch {
		case e.Outcome != history.OK:
		case e.Kind == history.LockEnd:
			granted[e.Key] = true
		case e.Kind == history.WriteEnd:
			written[e.Key] = true
		case e.Kind == history.ReadEnd:
			working[e.Worker] = true
		}
		return len(granted) == len(keys) && len(written) == len(keys) && len(working) == workers
	}) {
		return true
	}
	for _, key := range keys {
		if !granted[key] || !written[key] {
			n.stuck(key, "nobody got it and wrote in "+n.Patience.String())
		}
	}
	if len(working) < workers {
		n.stuck("", fmt.Sprintf("only %d of %d workers read in %s", len(working), workers, n.Patience))
	}
	return false
}

// withPatience returns a context that ends when this process could run for so
// long. The caller calls cancel, which waits for the goroutine.
func withPatience(ctx context.Context, patience time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		watch := stopwatch.Start()
		defer watch.Stop()
		for rest := patience; rest > 0 && ctx.Err() == nil; rest = patience - watch.Net() {
			pause(ctx, rest)
		}
		cancel()
	})
	return ctx, func() {
		cancel()
		watching.Wait()
	}
}

func (n *Nemesis) stuck(key, text string) {
	n.Log.Add(history.Event{Time: history.Now(), Kind: history.Stuck, Key: key, Err: text})
}

// pause waits.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
