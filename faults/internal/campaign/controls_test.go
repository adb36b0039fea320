//go:build unix

package campaign_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/faults/internal/arena"
	"github.com/pgadvisory/pgadvisory/faults/internal/campaign"
	"github.com/pgadvisory/pgadvisory/faults/internal/checker"
	"github.com/pgadvisory/pgadvisory/faults/internal/nemesis"
	"github.com/pgadvisory/pgadvisory/faults/internal/worker"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// options are for a short run, with a verdict every few rounds.
func options(t *testing.T, weights nemesis.Weights) campaign.Options {
	t.Helper()
	return campaign.Options{
		Seed: 1, Rounds: 48, SegmentRounds: 4, Workers: 3, Keys: 2, Weights: weights,
		Patience: 15 * time.Second, Dir: t.TempDir(),
	}
}

// turns has a place for each run that may go on at the same time: each has a
// server and several processes.
var turns = make(chan struct{}, 3)

func run(t *testing.T, o campaign.Options) (campaign.Report, string) {
	t.Helper()
	turns <- struct{}{}
	defer func() { <-turns }()
	var out bytes.Buffer
	report, err := campaign.Run(t.Context(), o, &out)
	require.NoError(t, err, out.String())
	return report, out.String()
}

// What the checker is for: each of these is one small change to what works, and
// is found. In which round is a matter of luck, and of how busy the machine is.
func TestRun_findsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]struct {
		weights nemesis.Weights
		server  arena.Flaw
		worker  worker.Flaw
		habit   worker.Habit
		leased  bool // the keys are locked in Redis
		rules   []checker.Rule
	}{
		"a trigger that does not keep the mark until the commit": {
			weights: nemesis.Weights{nemesis.Usurp: 1},
			server:  arena.PlainCheck,
			habit:   worker.SlowToCommit,
			rules:   []checker.Rule{checker.Stale},
		},
		"a trigger without FOR SHARE": {
			weights: nemesis.Weights{nemesis.Usurp: 1},
			server:  arena.SnapshotCheck,
			habit:   worker.SlowToWrite,
			rules:   []checker.Rule{checker.Stale},
		},
		"a mark that is raised with the first write": {
			weights: nemesis.Weights{nemesis.Usurp: 1},
			server:  arena.LateMark,
			rules:   []checker.Rule{checker.Stale},
		},
		"a token that is drawn before the grant": {
			weights: nemesis.Weights{nemesis.Pause: 1},
			server:  arena.EarlyToken,
			worker:  worker.EarlyToken,
			rules:   []checker.Rule{checker.Token},
		},
		"an unlock whose result nobody looks at": {
			weights: nemesis.Weights{nemesis.Pause: 1},
			worker:  worker.CarelessUnlock,
			// Either while all work, or when all rest.
			rules: []checker.Rule{checker.Stuck, checker.Left},
		},
		"a promotion that does not end what was held": {
			weights: nemesis.Weights{nemesis.Forget: 1},
			server:  arena.Unpromoted,
			habit:   worker.Persistent,
			rules:   []checker.Rule{checker.Stale},
		},
		"a session that nobody asks for a sign of life": {
			weights: nemesis.Weights{nemesis.HalfOpen: 1, nemesis.Mute: 1, nemesis.Deaf: 1},
			worker:  worker.NoHeartbeat,
			rules:   []checker.Rule{checker.Notice},
		},
		"a commit that is acknowledged before it is durable": {
			weights: nemesis.Weights{nemesis.Immediate: 1},
			server:  arena.AsyncCommit,
			rules:   []checker.Rule{checker.Content},
		},
		"a token that is drawn whatever the mark is": {
			weights: nemesis.Weights{nemesis.RedisCut: 1},
			server:  arena.PlainDraw,
			habit:   worker.LostBeforeDraw,
			leased:  true,
			rules:   []checker.Rule{checker.Stale},
		},
		"a lock in Redis without a second look": {
			weights: nemesis.Weights{nemesis.RedisCut: 1},
			worker:  worker.NoSecondLook,
			habit:   worker.LostBeforeDraw,
			leased:  true,
			rules:   []checker.Rule{checker.Stale},
		},
		"a lease that is trusted from the time of the answer on": {
			weights: nemesis.Weights{nemesis.RedisCut: 1},
			worker:  worker.LateTrust,
			habit:   worker.Lingering,
			leased:  true,
			rules:   []checker.Rule{checker.Exclusion},
		},
		"a DEL that deletes the lock of another": {
			weights: nemesis.Weights{nemesis.Usurp: 1},
			worker:  worker.CarelessDel,
			habit:   worker.Lingering,
			leased:  true,
			rules:   []checker.Rule{checker.Exclusion, checker.Stale},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if control.server == arena.Unpromoted {
				needStandby(t)
			}
			o := options(t, control.weights)
			if control.leased {
				o.Keys, o.Leased = 0, 1
			}
			if control.server == arena.Unpromoted {
				o.SegmentRounds = 2 // each takes seconds
			}
			if control.worker == worker.CarelessUnlock {
				o.Patience = 2 * time.Second // all of it
			}
			o.Flaw, o.WorkerFlaw, o.Habit = control.server, control.worker, control.habit
			report, out := runUntil(t, o, control.rules)
			require.Contains(t, out, "VIOLATION ")
			require.Regexp(t, `go run \./faults -seed \d+ -segment`, out)
			kept, err := filepath.Glob(filepath.Join(o.Dir, "*.jsonl"))
			require.NoError(t, err)
			require.Len(t, kept, 1)
			isGood, err := campaign.Judge(kept[0], io.Discard)
			require.NoError(t, err)
			require.False(t, isGood)
			t.Logf("found after %d rounds and %s:\n%s", report.Rounds, report.Elapsed, out)
		})
	}
}

// searchLimit bounds the search for a flaw. Most are found within seconds.
const searchLimit = 5 * time.Minute

// runUntil runs, one seed after the other, until one of the rules is violated. A
// flaw may show first by another of its effects: that run is logged, and its
// history deleted.
func runUntil(t *testing.T, o campaign.Options, rules []checker.Rule) (campaign.Report, string) {
	t.Helper()
	for o.Duration = searchLimit; ; o.Seed++ {
		report, out := run(t, o)
		if slices.ContainsFunc(report.Violations, func(v checker.Violation) bool { return slices.Contains(rules, v.Rule) }) {
			return report, out
		}
		t.Logf("seed %d: no violation of %v in %d rounds:\n%s", o.Seed, rules, report.Rounds, out)
		o.Duration -= report.Elapsed
		require.Positive(t, o.Duration, "not found within %s", searchLimit)
		others, err := filepath.Glob(filepath.Join(o.Dir, "*.jsonl"))
		require.NoError(t, err)
		for _, path := range others {
			require.NoError(t, os.Remove(path))
		}
	}
}

// The same without a flaw, so that it is the flaws that are found.
func TestRun_findsNothingInWhatWorks(t *testing.T) {
	t.Parallel()
	requireGood(t, 10, nemesis.Weights{nemesis.Usurp: 3, nemesis.Pause: 1, nemesis.Immediate: 1, nemesis.Kill: 1})
}

func TestRun_findsNothingInLeases(t *testing.T) {
	t.Parallel()
	weights := nemesis.Weights{
		nemesis.Usurp: 1, nemesis.RedisKill: 1, nemesis.RedisStop: 1, nemesis.RedisPause: 1,
		nemesis.RedisFlush: 1, nemesis.RedisDel: 1, nemesis.RedisCut: 1, nemesis.RedisDeaf: 1, nemesis.RedisLate: 1,
	}
	o := options(t, weights)
	o.Keys, o.Leased, o.Habit = 0, 2, worker.Lingering
	requireGoodRun(t, o, 16)
	o.Seed, o.Habit = 2, worker.LostBeforeDraw
	requireGoodRun(t, o, 8)
}

func TestRun_findsNothingInFailovers(t *testing.T) {
	t.Parallel()
	needStandby(t)
	requireGood(t, 3, nemesis.Weights{nemesis.Switch: 1, nemesis.FailOver: 1, nemesis.Forget: 1})
}

func requireGood(t *testing.T, rounds int, weights nemesis.Weights) {
	t.Helper()
	requireGoodRun(t, options(t, weights), rounds)
}

func requireGoodRun(t *testing.T, o campaign.Options, rounds int) {
	t.Helper()
	o.Rounds = rounds
	report, out := run(t, o)
	require.Empty(t, report.Violations, out)
	require.Equal(t, rounds, report.Rounds)
	require.Positive(t, report.Grants)
}

// needStandby skips a test where none can be made. CI can.
func needStandby(t *testing.T) {
	t.Helper()
	if err := pgtest.CheckStandby(t.Context()); err != nil {
		t.Skip(err)
	}
}
