package connhold_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

func TestAlarms_ringWhenTheyAreDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var timers connhold.Timers
		start := time.Now()
		const n = 500
		set, rung := make([]connhold.Timer, n), make([]time.Duration, n)
		at, off := make([]time.Duration, n), make([]bool, n)
		for i := range set {
			at[i] = time.Duration(1+rand.IntN(1000)) * time.Millisecond
			timers.Set(&set[i], start.Add(at[i]), func() { rung[i] = time.Since(start) })
			if other := rand.IntN(i + 1); rand.IntN(2) == 0 {
				off[other] = timers.Stop(&set[other]) || off[other]
			}
		}
		time.Sleep(2 * time.Second) //nolint:forbidigo // in a bubble, where time is not real
		synctest.Wait()
		for i := range set {
			if off[i] {
				at[i] = 0
			}
			require.Equal(t, at[i], rung[i])
			require.False(t, timers.Stop(&set[i]))
		}
	})
}

func TestAlarms_canBeSetAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var timers connhold.Timers
		var timer connhold.Timer
		rung := 0
		for range 100 {
			timers.Set(&timer, time.Now().Add(time.Second), func() { rung++ })
			require.True(t, timers.Stop(&timer))
			timers.Set(&timer, time.Now().Add(time.Millisecond), func() { rung++ })
			time.Sleep(2 * time.Millisecond) //nolint:forbidigo // in a bubble, where time is not real
			synctest.Wait()
		}
		require.Equal(t, 100, rung)
	})
}
