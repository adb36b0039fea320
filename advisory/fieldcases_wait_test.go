package advisory_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Case 72: hashes that a float or a modulo would spoil.
func TestID_takesAnyHashAsItIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hashes := []uint64{1 << 53, 1<<53 + 1, 1<<63 - 1, 1 << 63, 1<<63 + 1, 1<<64 - 2, 1<<64 - 1}
	var keys []advisory.Key
	for _, h := range hashes {
		keys = append(keys, advisory.ID(int64(h)))
	}
	lock, err := b.locker.TryLockAll(t.Context(), keys...)
	require.NoError(t, err)
	require.Equal(t, len(hashes), b.granted(t))
	for _, h := range hashes {
		require.Equal(t, 1, scan[int](t, b, "SELECT count(*) "+advisoryLocks+
			" AND objsubid = 1 AND classid::bigint = $1 AND objid::bigint = $2", int64(h>>32), int64(h&0xFFFFFFFF)), h)
	}
	require.ElementsMatch(t, keys, keysOf(b.inspect(t)))
	require.NoError(t, lock.Unlock(t.Context()))
}

// Case 74: other software that shares the database locks small numbers, and
// pairs of an oid and something small.
func TestName_isNoNumberThatOtherSoftwareTakes(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(4))
	other := b.session(t)
	exec(t, other, "SELECT pg_advisory_lock(i) FROM generate_series(-100, 10000) i")
	exec(t, other, "SELECT pg_advisory_lock(n) FROM unnest(ARRAY[72707369, 123456, 2147483647, 4294967295]) n")
	exec(t, other, "SELECT pg_advisory_lock(oid::int, b) FROM pg_class, generate_series(0, 3) b WHERE relkind = 'i'")
	var names []advisory.Key
	for _, what := range strings.Fields("migrate migration migrations lock leader election schema scheduler cron job jobs worker queue export import backup cleanup") {
		for _, form := range []string{"%s", "%s-lock", "%s_lock", "my-%s", "app:%s", "nightly-%s", "%s-1", "%s:42", "db/%s", "public.%s"} {
			names = append(names, advisory.Name(fmt.Sprintf(form, what)))
		}
	}
	lock, err := b.locker.TryLockAll(t.Context(), names...)
	require.NoError(t, err)
	require.Equal(t, len(names), scan[int](t, b, "SELECT count(*) "+advisoryLocks+" AND pid = $1", int(lock.BackendPID())))
	require.NoError(t, lock.Unlock(t.Context()))
}

// Case 89: the server sees no deadlock in two who wait for each other on other
// sessions than those that hold.
func TestLock_crossedWaitsEndWithTheirContexts(t *testing.T) {
	t.Parallel()
	b := setupWith(t, pgtest.ReadableLog)
	_, other := b.another(t, nil)
	one, err := b.locker.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	two, err := other.TryLock(t.Context(), advisory.ID(2))
	require.NoError(t, err)

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errs := make(chan error, 2)
	wait := func(l *advisory.Locker, id int64) {
		_, err := l.Lock(ctx, advisory.ID(id))
		errs <- err
	}
	go wait(b.locker, 2)
	go wait(other, 1)
	blocked := map[advisory.Key]uint32{}
	b.eventually(t, "Inspect shows both whom they wait for", func() bool {
		for _, s := range b.inspect(t) {
			if !s.Granted && len(s.BlockedBy) == 1 {
				blocked[s.Key] = s.BlockedBy[0]
			}
		}
		return len(blocked) == 2
	})
	require.Equal(t, map[advisory.Key]uint32{advisory.ID(1): one.BackendPID(), advisory.ID(2): two.BackendPID()}, blocked)
	cancel()
	require.ErrorIs(t, <-errs, context.Canceled)
	require.ErrorIs(t, <-errs, context.Canceled)
	require.NoError(t, one.Unlock(t.Context()))
	require.NoError(t, two.Unlock(t.Context()))
	b.leakCheck(t)
	require.NotContains(t, b.db.Log(t), "deadlock")
}

// Case 90: whichever of five is taken, what is held while it is waited for are
// those before it.
func TestLockAll_takesItsLocksInOneOrder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.session(t)
	order := ids(-7, 1, 2, 3, 1<<40)
	for i, taken := range order {
		exec(t, holder, "SELECT pg_advisory_lock("+taken.SQL()+")")
		keys := append([]advisory.Key(nil), order...)
		rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		got := make(chan *advisory.Lock, 1)
		go func() {
			lock, err := b.locker.LockAll(context.Background(), keys...)
			if err != nil {
				t.Error(err)
			}
			got <- lock
		}()
		waiter := uint32(b.waiterPID(t))
		var held []advisory.Key
		for _, s := range b.inspect(t) {
			if s.Granted && s.PID == waiter {
				held = append(held, s.Key)
			}
		}
		require.ElementsMatch(t, order[:i], held, "waiting for %s", taken)
		exec(t, holder, "SELECT pg_advisory_unlock("+taken.SQL()+")")
		require.NoError(t, (<-got).Unlock(t.Context()))
	}
	b.leakCheck(t)
}

// Case 105: how often the server is asked while fifty calls of a Locker wait.
func TestLock_asksAFewTimesASecond(t *testing.T) {
	t.Parallel()
	b := setupWith(t, pgtest.ReadableLog)
	pool, locker := b.another(t, nil, maxConns(2), setting("log_statement", "all"))
	holder := b.session(t)
	exec(t, holder, "SELECT pg_advisory_lock(7)")
	const n = 50
	errs := make(chan error, n)
	start := time.Now()
	for range n {
		go func() {
			errs <- locker.Do(context.Background(), advisory.ID(7), func(context.Context, *advisory.Lock) error { return nil })
		}()
	}
	b.eventually(t, "all are in the queue", func() bool { return advisory.Waiting(locker, advisory.ID(7)) == n })
	exec(t, holder, "SELECT pg_sleep(3)")
	asked := strings.Count(b.db.Log(t), "DO $pgadvisory$")
	slices := int(time.Since(start)/advisory.Slice) + 1
	require.LessOrEqual(t, asked, slices, "all together")
	require.Greater(t, asked, 2)
	require.EqualValues(t, 1, pool.Stat().AcquiredConns())

	exec(t, holder, "SELECT pg_advisory_unlock(7)")
	for range n {
		require.NoError(t, <-errs)
	}
	b.leakCheck(t)
}

// Case 109: calls are cancelled, and queries that share the pool are not.
func TestLock_cancelledCallsLeaveOtherQueriesAlone(t *testing.T) {
	t.Parallel()
	b := setupWith(t, pgtest.ReadableLog, maxConns(4))
	exec(t, b.session(t), "SELECT pg_advisory_lock(7)")
	stop := make(chan struct{})
	var work sync.WaitGroup
	for range 2 {
		work.Go(func() {
			for !isClosed(stop) {
				if _, err := b.pool.Exec(context.Background(), "SELECT pg_sleep(0.002)"); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(5*time.Millisecond))
		_, err := b.locker.Lock(ctx, advisory.ID(7))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		cancel()
	}
	close(stop)
	work.Wait()
	require.NotContains(t, b.db.Log(t), "canceling statement")
}

// Case 110: a table changes under a statement that the session has prepared.
func TestLockTx_survivesAPlanThatFitsNoMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	table := b.session(t)
	exec(t, table, "CREATE TABLE t (x int)")
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	read := func() error {
		return lock.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "SELECT * FROM t WHERE $1", true) // with an argument: prepared
			return err
		})
	}
	require.NoError(t, read())
	require.NoError(t, read())
	exec(t, table, "ALTER TABLE t ADD y text")
	requireSQLState(t, read(), "0A000")
	require.NoError(t, lock.Err(), "that is no loss")
	require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
	require.NoError(t, read(), "pgx has forgotten the plan")
	require.NoError(t, lock.Unlock(t.Context()))
	b.leakCheck(t)
}

// Case 113: the lock is freed by whoever stops the work, and not by the work.
func TestUnlock_doesNotWaitForWork(t *testing.T) {
	t.Parallel()
	b := setup(t)
	working, goOn := make(chan *advisory.Lock), make(chan struct{})
	done := make(chan error, 1)
	go func() {
		done <- b.locker.Do(context.Background(), advisory.ID(7), func(_ context.Context, lock *advisory.Lock) error {
			working <- lock
			<-goOn // whatever its context says
			return nil
		})
	}()
	lock := <-working
	require.NoError(t, lock.Unlock(t.Context()))
	require.Zero(t, b.granted(t))
	require.Empty(t, done)
	close(goOn)
	require.NoError(t, <-done)

	_, err := b.locker.TryLock(t.Context(), advisory.ID(8))
	require.NoError(t, err)
	require.NoError(t, b.locker.Close(t.Context()), "nor does Close")
	require.Zero(t, b.granted(t))
	_, err = b.locker.TryLock(t.Context(), advisory.ID(8))
	require.ErrorIs(t, err, advisory.ErrClosed)
}
