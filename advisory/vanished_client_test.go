package advisory_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Case 5: no cancel request gets through. What waits on the server for a call
// that has returned is gone after a slice.
func TestLock_givenUpWhereNoCancelRequestArrives(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := b.proxy(t)
	pool, locker := b.another(t, nil, through(proxy), maxConns(2))
	holder := b.session(t)
	fastest(t, advisory.Slice+time.Second, func() time.Duration {
		exec(t, holder, "SELECT pg_advisory_lock(7)")
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() {
			_, err := locker.Lock(ctx, advisory.ID(7))
			got <- err
		}()
		b.eventually(t, "it waits on the server", func() bool { return b.waiting(t) == 1 })
		proxy.HangNew(true)
		elapsed := timed(t)
		cancel()
		require.ErrorIs(t, <-got, context.Canceled)
		require.Less(t, elapsed(), time.Second)

		exec(t, holder, "SELECT pg_advisory_unlock(7)")
		elapsed = timed(t)
		b.noLockLeft(t)
		vanished := elapsed()
		lock, err := locker.Lock(t.Context(), advisory.ID(7))
		require.NoError(t, err, "no new connection is needed")
		require.NoError(t, lock.Unlock(t.Context()))
		require.EqualValues(t, 1, pool.Stat().NewConnsCount())
		proxy.HangNew(false)
		return vanished
	})
	require.Zero(t, pool.Stat().AcquiredConns())
}

// Cases 42 and 44: a holder that is gone while a statement of its session runs.
// From version 14 on the server looks for the client meanwhile; before, the end
// of the statement is what it notices.
func TestLoss_holderGoneInTheMiddleOfAStatement(t *testing.T) {
	t.Parallel()
	const vanish, statement = 3 * time.Second, 6 * time.Second
	limit := vanish/3 + time.Second
	b := setup(t)
	if b.db.Server.Version() < 140000 {
		limit += statement
	}
	fastest(t, limit, func() time.Duration {
		proxy := b.proxy(t)
		_, locker := b.another(t, &advisory.Config{Heartbeat: 500 * time.Millisecond, HeartbeatTimeout: 2 * time.Second, VanishTimeout: vanish}, through(proxy))
		lock, err := locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		ended := b.sleepOn(t.Context(), t, lock, statement)
		elapsed := timed(t)
		proxy.RefuseNew(true) // a process that was killed has nothing cancelled
		proxy.Cut()
		b.noLockLeft(t)
		took := elapsed()
		<-ended
		noticed(t, lock)
		return took
	})
}

// sleepOn runs a statement on the session that holds the lock, which is not to
// end before ctx does or the connection. What it returns is closed after.
func (b *bundle) sleepOn(ctx context.Context, t *testing.T, lock *advisory.Lock, long time.Duration) <-chan struct{} {
	t.Helper()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := lock.Tx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT pg_sleep($1)", long.Seconds())
			return err
		}); err == nil {
			t.Error("the statement was not cut off")
		}
	}()
	b.eventually(t, "the statement runs", func() bool {
		return scan[bool](t, b, "SELECT state = 'active' AND wait_event IS NOT DISTINCT FROM 'PgSleep' FROM pg_stat_activity WHERE pid = $1", int(lock.BackendPID()))
	})
	return ended
}
