package advisory_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// A round trip that fails may have done a part of its work. What the session
// holds once it finds out; how often it holds a shared lock it can't, and ends.
func TestSession_whenARoundTripFails(t *testing.T) {
	t.Parallel()
	tooMany := make([]advisory.Key, 10_000) // the server's lock table has no room for them
	for i := range tooMany {
		tooMany[i] = advisory.Pair(1, int32(i))
	}
	db := pgtest.StartWith(t, "max_locks_per_transaction=10", "max_connections=20")
	for _, shared := range []bool{false, true} {
		b := setupOn(t, db, nil, maxConns(4))
		require.Zero(t, b.granted(t)) // and the observer is connected, for which there may be no room later
		s := b.openSession(t)
		key := advisory.ID(7)
		held, err := s.TryRLock(t.Context(), key)
		require.NoError(t, err)
		try := s.TryLock
		other := advisory.ID(8)
		if shared {
			try, other = s.TryRLock, key
		}
		errs := make(chan error, 2)
		require.NoError(t, held.Tx(t.Context(), pgx.TxOptions{}, func(pgx.Tx) error { // so that both come into one round trip
			go func() {
				_, err := s.TryLockAll(context.Background(), tooMany...)
				errs <- err
			}()
			b.eventually(t, "it is queued", func() bool { return advisory.Queued(s) == 1 })
			go func() {
				_, err := try(context.Background(), other)
				errs <- err
			}()
			b.eventually(t, "it is queued", func() bool { return advisory.Queued(s) == 2 })
			return nil
		}))
		for range 2 {
			err := <-errs
			require.Error(t, err)
			if !shared {
				require.ErrorIs(t, err, advisory.ErrLockTableFull)
			}
		}
		if shared {
			<-held.Done()
			require.ErrorIs(t, held.Err(), advisory.ErrLost)
			b.eventually(t, "the session has ended", func() bool { // until then there is no room for a query
				alive := true
				err := b.raw.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1 AND "+inUse+")", int(s.BackendPID())).Scan(&alive)
				return err == nil && !alive
			})
			b.leakCheck(t)
			continue
		}
		require.NoError(t, held.Err())
		require.Equal(t, 1, b.granted(t))
		again, err := s.TryLock(t.Context(), other)
		require.NoError(t, err, "and the session goes on")
		require.NoError(t, again.Unlock(t.Context()))
		require.NoError(t, held.Unlock(t.Context()))
	}
}

func TestSessionClose_endsItsLocksBeforeOthersGetThem(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, other := b.another(t, nil)
	for range 30 {
		s := b.openSession(t)
		lock, err := s.TryLockAll(t.Context(), ids(1, 2, 3, 49)...)
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			next, err := other.Lock(context.Background(), advisory.ID(49))
			if err != nil {
				t.Error(err)
			}
			found := lock.Err()
			if err := next.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
			got <- found
		}()
		b.eventually(t, "it waits", func() bool { return b.waiting(t) == 1 })
		require.NoError(t, s.Close(t.Context()))
		require.ErrorIs(t, <-got, advisory.ErrClosed)
	}
}

func TestSessionClose_saysWhichLocksWereNotHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.openSession(t)
	lock, err := s.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	require.NoError(t, advisory.ExecOnSession(lock, "SELECT pg_advisory_unlock_all()"))
	second, err := s.TryLock(t.Context(), advisory.ID(2))
	require.NoError(t, err)
	require.ErrorIs(t, s.Close(t.Context()), advisory.ErrNotOwner)
	require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrNotOwner)
	err = second.Unlock(t.Context())
	require.ErrorIs(t, err, advisory.ErrClosed)
	require.NotErrorIs(t, err, advisory.ErrNotOwner)
	b.leakCheck(t)
}

func TestSession_givesWayWhenItIsBusy(t *testing.T) {
	t.Parallel()
	b := setup(t)
	s := b.openSession(t)
	held, err := s.TryLock(t.Context(), advisory.ID(-1))
	require.NoError(t, err)
	var cycles atomic.Int64
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for {
				lock, err := s.TryLock(context.Background(), advisory.ID(int64(i)))
				if err != nil || lock.Unlock(context.Background()) != nil {
					return
				}
				cycles.Add(1)
			}
		})
	}
	b.eventually(t, "it is busy", func() bool { return cycles.Load() > 200 })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, held.Tx(ctx, pgx.TxOptions{}, func(pgx.Tx) error { return nil }))
	require.NoError(t, s.Close(t.Context()))
	wg.Wait()
	b.leakCheck(t)
}

func TestSession_replacesAConnectionThatDiedInThePool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	pid := lock.BackendPID()
	require.NoError(t, lock.Unlock(t.Context()))
	b.terminate(t, pid)
	b.eventually(t, "it has ended", func() bool {
		return scan[int](t, b, "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", int(pid)) == 0
	})
	s := b.openSession(t)
	require.NotEqual(t, pid, s.BackendPID())
	require.NoError(t, s.Close(t.Context()))
}

// The server ends the session by itself before anything is asked of it. This process
// does nothing meanwhile that would order the loss after the opening: the race detector
// is to see both.
func TestSession_thatEndsBeforeItsFirstOperation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var last uint32 // may be ending still
	for range 10 {
		terminated := make(chan error, 1)
		terminate := fmt.Sprintf(`DO $$ BEGIN LOOP
				PERFORM pg_stat_clear_snapshot(), pg_sleep(0.001);
				PERFORM pg_terminate_backend(pid) FROM pg_stat_activity
					WHERE datname = current_database() AND pid <> %d AND application_name LIKE 'lock session%%' AND state = 'idle';
				EXIT WHEN FOUND;
			END LOOP; END $$`, last)
		go func() {
			_, err := b.raw.Exec(context.Background(), terminate)
			terminated <- err
		}()
		s := b.openSession(t)
		last = s.BackendPID()
		b.eventually(t, "the loss is noticed", func() bool { return b.pool.Stat().AcquiredConns() == 0 })
		require.NoError(t, <-terminated)
		_, err := s.TryLock(t.Context(), advisory.ID(7))
		require.ErrorIs(t, err, advisory.ErrLost)
		require.NoError(t, s.Close(t.Context()))
	}
	b.leakCheck(t)
}

func TestLocker_callsForManySayWhenThePoolIsBusy(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	for range 2 {
		c, err := b.pool.Acquire(t.Context())
		require.NoError(t, err)
		defer c.Release()
	}
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := b.locker.TryLockAll(ctx, ids(1, 2)...); return err },
		func(ctx context.Context) error { _, err := b.locker.LockAll(ctx, ids(1, 2)...); return err },
		func(ctx context.Context) error { _, err := b.locker.Session(ctx); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		err := call(ctx)
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, advisory.ErrPoolExhausted)
	}
}

// roundTrips counts statements, prepared or not.
type roundTrips struct{ n atomic.Int64 }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.n.Add(1)
	return ctx
}

func (r *roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (r *roundTrips) TracePrepareStart(ctx context.Context, _ *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	r.n.Add(1)
	return ctx
}

func (r *roundTrips) TracePrepareEnd(context.Context, *pgx.Conn, pgx.TracePrepareEndData) {}

func TestTryLock_costsOneRoundTripAndUnlockAnother(t *testing.T) {
	t.Parallel()
	r := new(roundTrips)
	b := setup(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = r })
	for i := range 5 {
		before := r.n.Load()
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(int64(i)))
		require.NoError(t, err)
		locked := r.n.Load()
		require.NoError(t, lock.Unlock(t.Context()))
		if i > 0 { // the connection is met, the statements are prepared
			require.EqualValues(t, 1, locked-before)
			require.EqualValues(t, 1, r.n.Load()-locked)
		}
	}
}

// An unlock waits for a transaction of another lock of its Session, and not without
// end.
func TestSession_unlockDoesNotWaitForATransactionWithoutEnd(t *testing.T) {
	t.Parallel()
	b := setupConfig(t, &advisory.Config{UnlockTimeout: 100 * time.Millisecond, HeartbeatTimeout: 5 * time.Second})
	s := b.openSession(t)
	busy, err := s.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	locks := make([]*advisory.Lock, 3)
	for i := range locks {
		locks[i], err = s.TryLock(t.Context(), advisory.ID(int64(10+i)))
		require.NoError(t, err)
	}
	begun, end := make(chan struct{}), make(chan struct{})
	txErr := make(chan error, 1)
	go func() {
		txErr <- busy.Tx(context.Background(), pgx.TxOptions{}, func(pgx.Tx) error {
			close(begun)
			<-end
			return nil
		})
	}()
	<-begun
	var unlocks sync.WaitGroup
	for _, lock := range locks {
		unlocks.Go(func() {
			if err := lock.Unlock(context.Background()); err == nil {
				t.Error("unlocked, which it can't know")
			}
		})
	}
	unlocks.Wait()
	b.noLockLeft(t)
	close(end)
	require.Error(t, <-txErr)
	<-busy.Done()
	require.ErrorIs(t, busy.Err(), advisory.ErrLost)
	for _, lock := range locks {
		require.Error(t, lock.Unlock(t.Context()))
	}
	_, err = s.TryLock(t.Context(), advisory.ID(2))
	require.ErrorIs(t, err, advisory.ErrLost)
	b.leakCheck(t)
}
