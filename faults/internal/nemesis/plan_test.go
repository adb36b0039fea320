//go:build unix

package nemesis_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pgadvisory/pgadvisory/faults/internal/nemesis"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestPlan_isTheSeeds(t *testing.T) {
	t.Parallel()
	plan := func(seed uint64, segment int) []nemesis.Action {
		return nemesis.Plan(seed, segment, 500, 5, []string{"a", "b", "c"}, nemesis.All)
	}
	first, again := plan(1, 1), plan(1, 1)
	require.Equal(t, first, again)
	require.NotEqual(t, plan(1, 1), plan(2, 1))
	require.NotEqual(t, plan(1, 1), plan(1, 2))
	// The end of a long plan is not another when the plan is cut short.
	require.Equal(t, plan(1, 1)[:50], nemesis.Plan(1, 1, 50, 5, []string{"a", "b", "c"}, nemesis.All))
}

func TestPlan_hasAllKindsWorkersAndKeys(t *testing.T) {
	t.Parallel()
	kinds, workers, keys := make(map[nemesis.Kind]int), make(map[int]int), make(map[string]int)
	for _, a := range nemesis.Plan(1, 1, 5000, 5, []string{"a", "b", "c"}, nemesis.All) {
		kinds[a.Kind]++
		workers[a.Worker]++
		keys[a.Key]++
		require.Positive(t, a.For)
	}
	require.Len(t, workers, 5)
	require.Len(t, keys, 3)
	for kind, weight := range nemesis.All {
		require.Positive(t, weight, kind)
		require.Positive(t, kinds[kind], kind)
	}
	require.Len(t, kinds, len(nemesis.All))
}

func TestPlan_hasOnlyWhatHasAWeight(t *testing.T) {
	t.Parallel()
	for _, a := range nemesis.Plan(1, 1, 100, 5, []string{"a"}, nemesis.Weights{nemesis.Kill: 1}) {
		require.Equal(t, nemesis.Kill, a.Kind)
	}
}

func TestWeights_areChosenByName(t *testing.T) {
	t.Parallel()
	only, err := nemesis.Only([]string{"kill", "fail-over"})
	require.NoError(t, err)
	require.Equal(t, nemesis.Weights{nemesis.Kill: nemesis.All[nemesis.Kill], nemesis.FailOver: nemesis.All[nemesis.FailOver]}, only)
	without, err := nemesis.Without([]string{"kill"})
	require.NoError(t, err)
	require.Len(t, without, len(nemesis.All)-1)
	require.NotContains(t, without, nemesis.Kill)
	require.Contains(t, nemesis.All, nemesis.Kill)

	_, err = nemesis.Only([]string{"flood"})
	require.ErrorContains(t, err, `no fault "flood"`)
	_, err = nemesis.Without([]string{"flood"})
	require.ErrorContains(t, err, `no fault "flood"`)
}
