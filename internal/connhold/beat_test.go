package connhold_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// A backend that answers is a sign of life only if it is the right one.
func TestWatch_noticesThatAnotherBackendAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, isOther := range []bool{true, false} {
		hold := b.pin(t)
		limits := connhold.Limits{Heartbeat: time.Millisecond, Timeout: limit, Backend: hold.PID()}
		if isOther {
			limits.Backend++
		}
		lost := make(chan *connhold.Loss, 2)
		hold.Watch(limits, func(loss *connhold.Loss) { lost <- loss })
		if !isOther {
			<-time.After(20 * limits.Heartbeat)
			require.Nil(t, hold.Unwatch(limit))
			hold.Release()
			require.EqualValues(t, 1, b.pool.Stat().TotalConns())
			continue
		}
		loss := <-lost
		require.Equal(t, connhold.OtherBackend, loss.Reason)
		require.Error(t, loss.Cause)
		hold.Release()
		require.Zero(t, b.pool.Stat().TotalConns())
	}
}
