package election_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/election"
)

func TestBackoff_doublesUpToTenSeconds(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]time.Duration{
		1: 100 * time.Millisecond, 2: 200 * time.Millisecond, 3: 400 * time.Millisecond, 7: 6400 * time.Millisecond,
		8: 10 * time.Second, 9: 10 * time.Second, 64: 10 * time.Second, math.MaxInt: 10 * time.Second,
	} {
		require.Equal(t, want, election.Backoff(failures, 0), failures)
		require.Equal(t, want/2, election.Backoff(failures, 1), failures)
		for range 100 {
			d := election.Backoff(failures, rand.Float64())
			require.LessOrEqual(t, d, want)
			require.GreaterOrEqual(t, d, want/2)
		}
	}
}
