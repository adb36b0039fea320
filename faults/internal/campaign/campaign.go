//go:build unix

package campaign

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/arena"
	"github.com/pgadvisory/pgadvisory/faults/internal/checker"
	"github.com/pgadvisory/pgadvisory/faults/internal/nemesis"
	"github.com/pgadvisory/pgadvisory/faults/internal/worker"
)

// DefaultSegmentRounds and DefaultPatience are those of a run without others.
const (
	DefaultSegmentRounds = 50
	DefaultPatience      = 20 * time.Second
)

// slack is what a worker may take to tell that it has noticed, besides the time in
// which its process does not run.
const slack = 200 * time.Millisecond

// Options is what a run consists of.
type Options struct {
	Seed     uint64
	Segment  int           // if it is not 0, only this one
	Rounds   int           // in all
	Duration time.Duration // if it is not 0, no round begins after it
	Workers  int
	Keys     int // that sessions of PostgreSQL lock
	Leased   int // keys besides, that are locked in Redis
	Weights  nemesis.Weights
	Args     string // what has to be given to the command for these weights
	// SegmentRounds is how many rounds have a verdict in common. A segment begins
	// without locks and with new processes, so that it can be run alone.
	SegmentRounds int
	Patience      time.Duration // until a key that nobody gets is called stuck
	Dir           string        // for the histories of what went wrong
	Keep          bool          // those of the others too

	Flaw       arena.Flaw // of the server
	WorkerFlaw worker.Flaw
	Habit      worker.Habit
}

// Report is what came of a run.
type Report struct {
	checker.Stats
	Rounds     int
	Segments   int
	Violations []checker.Violation
	Elapsed    time.Duration
}

// Run runs until a segment has violations, or to the end. It tells of its progress
// on out. An error is one of the kit itself; what workers and server did wrong is
// in the report.
func Run(ctx context.Context, o Options, out io.Writer) (report Report, err error) {
	if o.SegmentRounds == 0 {
		o.SegmentRounds = DefaultSegmentRounds
	}
	if o.Patience == 0 {
		o.Patience = DefaultPatience
	}
	start := time.Now()
	keys := make([]string, o.Keys)
	for i := range keys {
		keys[i] = string(rune('a' + i))
	}
	leased := make([]string, o.Leased)
	for i := range leased {
		leased[i] = "redis_" + string(rune('a'+i))
	}
	if o.Leased == 0 {
		o.Weights = o.Weights.WithoutRedis()
	}
	a, err := arena.Open(ctx, slices.Concat(keys, leased), o.Leased > 0)
	if err != nil {
		return report, err
	}
	defer func() {
		if closeErr := a.Close(); err == nil {
			err = closeErr
		}
	}()
	if err := a.Break(ctx, o.Flaw); err != nil {
		return report, err
	}
	c := &campaign{Options: o, arena: a, keys: keys, leased: leased, out: out, deadline: start.Add(o.Duration)}
	for segment, rest := 1, o.Rounds; rest > 0 && !c.isOver(); segment, rest = segment+1, rest-o.SegmentRounds {
		if o.Segment != 0 && segment != o.Segment {
			continue
		}
		result, rounds, err := c.segment(ctx, segment, min(rest, o.SegmentRounds))
		if err != nil {
			return report, fmt.Errorf("segment %d of seed %d: %w", segment, o.Seed, err)
		}
		report.Add(result.Stats)
		report.Rounds += rounds
		report.Segments++
		report.Violations = result.Violations
		report.Elapsed = time.Since(start)
		if len(result.Violations) > 0 {
			break
		}
	}
	return report, err
}

// campaign is a run while it goes on.
type campaign struct {
	Options
	arena    *arena.Arena
	keys     []string
	leased   []string
	out      io.Writer
	deadline time.Time
}

func (c *campaign) isOver() bool { return c.Duration != 0 && time.Now().After(c.deadline) }
