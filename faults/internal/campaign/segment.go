//go:build unix

package campaign

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/checker"
	"github.com/pgadvisory/pgadvisory/faults/internal/fleet"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
	"github.com/pgadvisory/pgadvisory/faults/internal/nemesis"
	"github.com/pgadvisory/pgadvisory/faults/internal/worker"
)

// leftLimit is how long the server may take to see that sessions have ended.
const leftLimit = 5 * time.Second

// limits are the workers'.
var limits = checker.Limits{
	Notice: worker.Heartbeat + worker.HeartbeatTimeout,
	Unlock: worker.UnlockTimeout + time.Second, // to close the connection
	Slack:  slack,
}

// segment runs some rounds and judges them.
func (c *campaign) segment(ctx context.Context, number, rounds int) (result checker.Result, done int, err error) {
	start := time.Now()
	path := filepath.Join(c.Dir, fmt.Sprintf("seed-%d-segment-%d.jsonl", c.Seed, number))
	file, err := os.Create(path)
	if err != nil {
		return result, 0, err
	}
	defer func() {
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
	}()
	buffer := bufio.NewWriter(file)
	log := history.NewLog(buffer)
	done, err = c.fight(ctx, number, rounds, log)
	events, logErr := log.Events()
	for _, e := range []error{err, logErr, buffer.Flush()} {
		if e != nil {
			return result, done, fmt.Errorf("%w (the history so far is in %s)", e, path)
		}
	}
	result = checker.Check(events, limits)
	c.announce(number, done, result, time.Since(start))
	if len(result.Violations) > 0 {
		return result, done, c.show(number, path, events, result.Violations)
	}
	if !c.Keep {
		err = os.Remove(path)
	}
	return result, done, err
}

// fight is the segment itself.
func (c *campaign) fight(ctx context.Context, number, rounds int, log *history.Log) (done int, err error) {
	if err := c.look(ctx, number, log); err != nil {
		return 0, err
	}
	addr, err := c.arena.Addr()
	if err != nil {
		return 0, err
	}
	like := worker.Config{
		DSN: c.arena.DSN(), Seed: c.Seed, Segment: number, Keys: c.keys, Leased: c.leased, Flaw: c.WorkerFlaw, Habit: c.Habit,
	}
	if c.arena.Redis != nil {
		like.Redis = c.arena.Redis.Addr()
	}
	f, err := fleet.Launch(c.Workers, like, addr, log)
	if err != nil {
		return 0, err
	}
	defer f.Destroy()
	n := &nemesis.Nemesis{Arena: c.arena, Fleet: f, Log: log, Segment: number, Patience: c.Patience}
	for _, action := range nemesis.Plan(c.Seed, number, rounds, c.Workers, c.arena.Keys(), c.Weights) {
		if c.isOver() {
			break
		}
		recovered, err := n.Do(ctx, action)
		if err != nil {
			return done, err
		}
		if done++; !recovered {
			break // it is in the history
		}
	}
	return done, c.rest(ctx, number, f, log)
}

// rest ends the segment in good order and looks for what is left.
func (c *campaign) rest(ctx context.Context, number int, f *fleet.Fleet, log *history.Log) error {
	left := func(what string) {
		if what != "" {
			log.Add(history.Event{Time: history.Now(), Kind: history.Left, Err: what})
		}
	}
	if err := f.Rest(ctx); err != nil {
		left("work: " + err.Error())
		f.Destroy()
		return c.look(ctx, number, log)
	}
	locks, err := c.arena.Locks(ctx, min(leftLimit, c.Patience))
	if err != nil {
		return err
	}
	if locks != "" {
		left("locks while all rest: " + locks)
	}
	if err := f.End(); err != nil {
		left("a process: " + err.Error())
	}
	sessions, err := c.arena.Sessions(ctx, leftLimit)
	if err != nil {
		return err
	}
	if sessions != "" {
		left("sessions: " + sessions)
	}
	return c.look(ctx, number, log)
}

// look notes what is in the tables.
func (c *campaign) look(ctx context.Context, number int, log *history.Log) error {
	contents, err := c.arena.Contents(ctx, number)
	for _, e := range contents {
		log.Add(e)
	}
	return err
}
