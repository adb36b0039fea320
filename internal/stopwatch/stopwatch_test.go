package stopwatch_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pgadvisory/pgadvisory/internal/stopwatch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// In a bubble nobody oversleeps.
func TestStopwatch_countsTheTimeInWhichTheProcessRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := stopwatch.Start()
		time.Sleep(3 * time.Second) //nolint:forbidigo // in a bubble, where time is not real
		require.InDelta(t, 3*time.Second, w.Net(), float64(2*time.Millisecond))
		require.Equal(t, w.Net(), w.Stop())
		w.Stop()
	})
}

// For want of a way to keep the process from running it is the stopwatch's
// goroutine that is kept from it.
func TestStopwatch_takesOffWhatItCouldNotRun(t *testing.T) {
	t.Parallel()
	w := stopwatch.Start()
	defer w.Stop()
	const stolen = 300 * time.Millisecond
	start := time.Now()
	stopwatch.Freeze(w, stolen)
	require.Less(t, w.Net(), time.Since(start)-stolen*9/10)
}
