//go:build unix

package redislease_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/redislease"
)

func TestFence_refusesTokensBelowTheHighest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fence, err := redislease.NewFence(b.observer, b.prefix)
	require.NoError(t, err)
	key := b.prefix + "{r}:data"
	value := func() string { return b.observer.Get(t.Context(), key).Val() }

	require.NoError(t, fence.Set(t.Context(), "r", 9, key, "nine"))
	require.NoError(t, fence.Set(t.Context(), "r", 9, key, "nine again"), "the same holder")
	require.NoError(t, fence.Raise(t.Context(), "r", 10))
	err = fence.Set(t.Context(), "r", 9, key, "late")
	require.ErrorIs(t, err, redislease.ErrStale)
	var stale *redislease.StaleError
	require.ErrorAs(t, err, &stale)
	require.Equal(t, redislease.StaleError{Resource: "r", Token: 9, Current: 10}, *stale)
	require.ErrorIs(t, fence.Del(t.Context(), "r", 1, key), redislease.ErrStale)
	require.Equal(t, "nine again", value())

	// What a double does not tell apart.
	require.NoError(t, fence.Set(t.Context(), "r", math.MaxInt64-1, key, "large"))
	require.NoError(t, fence.Set(t.Context(), "r", math.MaxInt64, key, "largest"))
	require.ErrorIs(t, fence.Set(t.Context(), "r", math.MaxInt64-1, key, "late"), redislease.ErrStale)
	require.Equal(t, "largest", value())
	require.NoError(t, fence.Del(t.Context(), "r", math.MaxInt64, key))
	require.Empty(t, value())

	for _, token := range []int64{0, -1, math.MinInt64} {
		require.ErrorContains(t, fence.Set(t.Context(), "r", token, key, "none"), "tokens start at 1")
	}
	require.ErrorIs(t, fence.Raise(t.Context(), "", 1), redislease.ErrInvalidResource)
	require.NoError(t, fence.Raise(t.Context(), "another", 1), "each resource has a mark of its own")
}

func TestFence_runsAScriptAsOneStep(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fence, err := redislease.NewFence(b.observer, b.prefix)
	require.NoError(t, err)
	transfer := redislease.NewScript(`
		redis.call('DECRBY', KEYS[1], ARGV[1])
		return redis.call('INCRBY', KEYS[2], ARGV[1])`)
	accounts := []string{b.prefix + "{r}:from", b.prefix + "{r}:to"}
	for range 2 {
		require.NoError(t, b.observer.ScriptFlush(t.Context()).Err())
		_, err = fence.Run(t.Context(), transfer, "r", 2, accounts, 5)
		require.NoError(t, err)
	}
	reply, err := fence.Run(t.Context(), transfer, "r", 3, accounts, 1)
	require.NoError(t, err)
	require.Equal(t, int64(11), reply)
	_, err = fence.Run(t.Context(), transfer, "r", 2, accounts, 5)
	require.ErrorIs(t, err, redislease.ErrStale)
	require.Equal(t, "-11", b.observer.Get(t.Context(), accounts[0]).Val())
	_, err = fence.Run(t.Context(), redislease.NewScript(`return redis.call('NONSENSE')`), "r", 3, nil)
	require.Error(t, err)
	require.NotErrorIs(t, err, redislease.ErrStale)
}

func TestFence_overALease(t *testing.T) {
	t.Parallel()
	b := setup(t)
	l, other := b.leaser(t, nil), b.leaser(t, nil)
	fence, err := redislease.NewFence(b.client(t), b.prefix)
	require.NoError(t, err)
	key := b.prefix + "{r}:data"
	old := mustLock(t, l, "r")
	require.NoError(t, fence.Set(t.Context(), "r", old.Token(), key, "old"))
	require.NoError(t, b.observer.Del(t.Context(), b.key("r")).Err())
	current := mustLock(t, other, "r")
	require.NoError(t, fence.Set(t.Context(), "r", current.Token(), key, "new"))
	require.ErrorIs(t, fence.Set(t.Context(), "r", old.Token(), key, "late"), redislease.ErrStale)
	require.Equal(t, "new", b.observer.Get(t.Context(), key).Val())
	require.NoError(t, current.Unlock(t.Context()))
}

func TestMarks_returnTheHighest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	fence, err := redislease.NewFence(b.observer, b.prefix)
	require.NoError(t, err)
	for _, c := range []struct{ token, want int64 }{{3, 3}, {2, 3}, {3, 3}, {11, 11}, {9, 11}} {
		mark, err := fence.Marks().Raise(t.Context(), "r", c.token)
		require.NoError(t, err)
		require.Equal(t, c.want, mark)
	}
}

func TestNewFence_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	_, err := redislease.NewFence(nil, "")
	require.Error(t, err)
	_, err = redislease.NewFence(setup(t).observer, "a{")
	require.Error(t, err)
}
