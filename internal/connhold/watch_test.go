package connhold_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
	"github.com/pgadvisory/pgadvisory/internal/stopwatch"
)

var quick = connhold.Limits{Heartbeat: 200 * time.Millisecond, Timeout: 200 * time.Millisecond}

// watched pins a connection and watches it; the channel gets the loss.
func (b *bundle) watched(t *testing.T, limits connhold.Limits) (*connhold.Hold, <-chan *connhold.Loss) {
	t.Helper()
	hold := b.pin(t)
	lost := make(chan *connhold.Loss, 2)
	hold.Watch(limits, func(loss *connhold.Loss) { lost <- loss })
	return hold, lost
}

func TestWatch_noticesTheEndOfTheSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range []struct {
		fault  func(pid uint32)
		limits connhold.Limits
		reason connhold.Reason
	}{
		{func(pid uint32) {
			_, err := b.observer.Exec(t.Context(), "SELECT pg_terminate_backend($1)", int(pid))
			require.NoError(t, err)
		}, slow, connhold.Terminated},
		{func(uint32) { b.proxy.Cut() }, slow, connhold.Disconnected},
		{func(uint32) { b.proxy.Reset() }, slow, connhold.Disconnected},
		{func(uint32) { b.proxy.Swallow() }, quick, connhold.Unresponsive},
	} {
		hold, lost := b.watched(t, c.limits)
		start := time.Now()
		c.fault(hold.PID())
		loss := <-lost
		require.Equal(t, c.reason, loss.Reason)
		require.Error(t, loss.Cause)
		if c.reason == connhold.Unresponsive {
			require.Less(t, time.Since(start), limit/2) // package advisory has the exact bound
			require.True(t, pgconn.Timeout(loss.Cause))
		}
		require.Equal(t, loss, hold.Unwatch(time.Second), "whoever takes the session back is told as well")
		require.Equal(t, loss, hold.Unwatch(time.Second), "and again")
		hold.Release()
		require.Zero(t, b.pool.Stat().TotalConns())
		require.Empty(t, lost, "told once")
	}
}

// The server has ended the session before it is watched, so that the loss is told
// while Watch returns. onLost ends the hold, as its owner may have it do.
func TestWatch_onLostMayEndTheHoldBeforeWatchReturns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 5 {
		hold := b.pin(t)
		pid := hold.PID()
		_, err := b.observer.Exec(t.Context(), "SELECT pg_terminate_backend($1)", int(pid))
		require.NoError(t, err)
		b.ended(t, pid)
		ended := make(chan *connhold.Loss)
		hold.Watch(slow, func(loss *connhold.Loss) {
			if hold.IsClean() {
				t.Error("clean, though it is watched")
			}
			hold.Destroy()
			ended <- loss
		})
		require.Equal(t, connhold.Terminated, (<-ended).Reason)
		require.Zero(t, b.pool.Stat().TotalConns())
	}
}

func TestUnwatch_givesTheSessionBackUnharmed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, limits := range []connhold.Limits{
		{Heartbeat: time.Nanosecond},
		{Heartbeat: 50 * time.Microsecond},
		{Heartbeat: time.Millisecond},
		{Heartbeat: time.Hour},
		{Heartbeat: time.Nanosecond, StartDelay: 50 * time.Microsecond},
		{Heartbeat: time.Nanosecond, StartDelay: time.Hour},
	} {
		limits.Timeout = limit
		hold, lost := b.watched(t, limits)
		pid := hold.PID()
		for i := range 200 {
			<-time.After(time.Duration(i%20) * 10 * time.Microsecond) // in all states of the watch
			require.Nil(t, hold.Unwatch(limit))
			require.NoError(t, run(t, hold, "SELECT 1"))
			hold.Watch(limits, func(*connhold.Loss) { t.Error("lost") })
		}
		require.Nil(t, hold.Unwatch(limit))
		hold.Release()
		require.True(t, b.isAlive(t, pid))
		require.EqualValues(t, 1, b.pool.Stat().IdleConns())
		require.Empty(t, lost)
	}
}

func TestUnwatch_cutsOffAHeartbeatThatIsNotAnswered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hold := b.pin(t)
	b.proxy.SwallowOnly(faultproxy.ToClient)
	lost := make(chan *connhold.Loss, 1)
	hold.Watch(connhold.Limits{Heartbeat: time.Nanosecond, Timeout: time.Hour}, func(loss *connhold.Loss) { lost <- loss })
	b.eventually(t, "the heartbeat has arrived", func() bool { return b.lastQuery(t, hold.PID()) == "-- pgadvisory heartbeat" })
	w := stopwatch.Start()
	loss := hold.Unwatch(50 * time.Millisecond)
	require.Less(t, w.Stop(), 5*time.Second)
	require.NotNil(t, loss)
	require.Equal(t, connhold.Unresponsive, loss.Reason)
	require.Equal(t, loss, <-lost)
	hold.Destroy()
}

func TestWatch_ignoresWhatIsNoLoss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hold := b.pin(t)
	require.NoError(t, run(t, hold, "LISTEN news"))
	hold.Watch(connhold.Limits{Heartbeat: time.Millisecond, Timeout: limit}, func(loss *connhold.Loss) { t.Error(loss) })
	for range 100 { // notifications, and cancel requests that may hit a heartbeat
		_, err := b.observer.Exec(t.Context(), "SELECT pg_notify('news', 'x'), pg_cancel_backend($1)", int(hold.PID()))
		require.NoError(t, err)
	}
	require.Nil(t, hold.Unwatch(limit))
	hold.Destroy() // it listens
}

func TestLossFrom_tellsADeadSessionFromAnAnswer(t *testing.T) {
	t.Parallel()
	// Case 12.
	answered := []string{"57014", "55P03", "53300", "25P02", "0A000"}
	for _, code := range answered {
		require.Nil(t, connhold.LossFrom(&pgconn.PgError{SeverityUnlocalized: "ERROR", Code: code}), code)
	}
	for _, code := range []string{"57P01", "57P02", "57P03", "57P05", "25P03", "08006"} {
		require.Equal(t, connhold.Terminated, connhold.LossFrom(&pgconn.PgError{SeverityUnlocalized: "FATAL", Code: code}).Reason, code)
	}
	require.Equal(t, connhold.Disconnected, connhold.LossFrom(errors.New("read: connection reset by peer")).Reason)
}
