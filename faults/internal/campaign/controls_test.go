//go:build unix

package campaign_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/faults/internal/arena"
	"github.com/pgadvisory/pgadvisory/faults/internal/campaign"
	"github.com/pgadvisory/pgadvisory/faults/internal/checker"
	"github.com/pgadvisory/pgadvisory/faults/internal/nemesis"
	"github.com/pgadvisory/pgadvisory/faults/internal/worker"
)

// options are for a short run, with a verdict every few rounds.
func options(t *testing.T, weights nemesis.Weights) campaign.Options {
	t.Helper()
	return campaign.Options{
		Seed: 1, Rounds: 48, SegmentRounds: 6, Workers: 3, Keys: 2, Weights: weights,
		Patience: 3 * time.Second, Dir: t.TempDir(),
	}
}

// What the checker is for: each of these is one small change to what works, and
// is found within the rounds of a short run.
func TestRun_findsWhatIsBroken(t *testing.T) {
	t.Parallel()
	for name, control := range map[string]struct {
		weights nemesis.Weights
		server  arena.Flaw
		worker  worker.Flaw
		rules   []checker.Rule // any of them
	}{
		"a trigger that reads the mark without a lock": {
			weights: nemesis.Weights{nemesis.Usurp: 1},
			server:  arena.PlainCheck,
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
			rules:   []checker.Rule{checker.Left},
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := options(t, control.weights)
			o.Flaw, o.WorkerFlaw = control.server, control.worker
			var out bytes.Buffer
			report, err := campaign.Run(t.Context(), o, &out)
			require.NoError(t, err)
			require.NotEmpty(t, report.Violations, "not found in %d rounds", report.Rounds)
			var rules []checker.Rule
			for _, v := range report.Violations {
				rules = append(rules, v.Rule)
			}
			require.Subset(t, rules, control.rules, out.String())
			require.Contains(t, out.String(), "VIOLATION "+string(rules[0]))
			require.Contains(t, out.String(), "go run ./faults -seed 1 -segment")
			t.Logf("found after %d rounds and %s:\n%s", report.Rounds, report.Elapsed, &out)
		})
	}
}

// The same without a flaw, so that it is the flaws that are found.
func TestRun_findsNothingInWhatWorks(t *testing.T) {
	t.Parallel()
	o := options(t, nemesis.Weights{nemesis.Usurp: 3, nemesis.Pause: 1, nemesis.Immediate: 1, nemesis.FailOver: 1, nemesis.Kill: 1})
	o.Rounds = 12
	var out bytes.Buffer
	report, err := campaign.Run(t.Context(), o, &out)
	require.NoError(t, err)
	require.Empty(t, report.Violations, out.String())
	require.Equal(t, 12, report.Rounds)
	require.Positive(t, report.Grants)
}
