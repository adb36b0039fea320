package lockid_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

func TestOfPair_keepsBothNumbers(t *testing.T) {
	t.Parallel()
	numbers := []int32{0, 1, -1, 7, math.MaxInt32, math.MinInt32}
	for _, class := range numbers {
		for _, object := range numbers {
			id := lockid.OfPair(class, object)
			require.True(t, id.IsPair())
			require.Equal(t, class, id.Class())
			require.Equal(t, object, id.Object())
			require.NotEqual(t, lockid.OfNumber(id.Number), id)
		}
	}
}

func TestSort_putsBigIntsFirstAndEachLockOnce(t *testing.T) {
	t.Parallel()
	target := func(id lockid.ID) lockid.Target { return lockid.Target{ID: id} }
	sorted := lockid.Sort([]lockid.Target{
		target(lockid.OfPair(-1, 5)), target(lockid.OfNumber(3)), target(lockid.OfNumber(-3)), target(lockid.OfPair(-1, 5)), target(lockid.OfNumber(3)),
	})
	require.Equal(t, []lockid.Target{target(lockid.OfNumber(-3)), target(lockid.OfNumber(3)), target(lockid.OfPair(-1, 5))}, sorted)
}

// The numbers are a server's, SELECT hashtextextended(name, 0).
func TestHash_isTheServersHash(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]int64{
		"a": 3591986179850072241, "nightly-export": -2196931983678567086, "0123456789ab": -300982144080685429, "🐘": -2321601135681841783,
	} {
		require.Equal(t, want, lockid.Hash(name), name)
	}
}
