package advisory_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/grant"
	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// lockWithAllSeats locks a key and takes all of its seats, so that exclusive waiters are
// parked. free unlocks the key.
func (b *bundle) lockWithAllSeats(t *testing.T, id int64) (free func()) {
	t.Helper()
	holder := b.session(t)
	exec(t, holder, "SELECT pg_advisory_lock("+strconv.FormatInt(id, 10)+")")
	for i := range lockid.Seats {
		seat := lockid.OfPair(lockid.SeatClass, lockid.OfNumber(id).Seat()+int32(i))
		exec(t, b.session(t), "SELECT pg_advisory_lock("+seat.SQL()+")")
	}
	return func() { exec(t, holder, "SELECT pg_advisory_unlock("+strconv.FormatInt(id, 10)+")") }
}

// parkedCall is a call for the key that is parked, and the function with which it leaves.
func (b *bundle) parkedCall(t *testing.T, key advisory.Key) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() { _, err := b.locker.Lock(ctx, key); left <- err }()
	b.eventually(t, "it is parked, and has a place", func() bool {
		return scan[bool](t, b, "SELECT EXISTS (SELECT "+advisoryLocks+" AND granted AND classid = $1)", uint32(1<<32+int64(lockid.PlaceClass)))
	})
	return func() {
		cancel()
		require.ErrorIs(t, <-left, context.Canceled)
	}
}

// A reader that comes to its turn on a session that is parked for a writer waits on the
// server, like every reader.
func TestRLock_afterAWriterThatWasParkedWaitsOnTheServer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	free := b.lockWithAllSeats(t, 7)
	leave := b.parkedCall(t, advisory.ID(7))
	got := make(chan *advisory.Lock, 1)
	go func() {
		lock, err := b.locker.RLock(t.Context(), advisory.ID(7))
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	b.eventually(t, "it is behind the writer", func() bool { return advisory.Waiting(b.locker, advisory.ID(7)) == 2 })
	leave()
	b.eventually(t, "it waits on the server", func() bool { return b.waiting(t) == 1 })
	free()
	require.NoError(t, (<-got).Unlock(t.Context()))
}

// Where the role's defaults are not what an Issue needs, it is made in a transaction with
// others, also if the session was parked for a call without one, which did not find that
// out.
func TestLock_withAnIssueAfterOneWithoutThatWasParked(t *testing.T) {
	t.Parallel()
	b := setup(t, setting("default_transaction_isolation", "repeatable read"))
	_, err := b.raw.Exec(t.Context(), `CREATE FUNCTION public.receipt(text) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN
		IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE 'not in %', current_setting('transaction_isolation'); END IF;
		RETURN 5;
	END $$`)
	require.NoError(t, err)
	free := b.lockWithAllSeats(t, 7)
	leave := b.parkedCall(t, advisory.ID(7))
	type answer struct {
		lock    *advisory.Lock
		receipt int64
		err     error
	}
	got := make(chan answer, 1)
	go func() {
		lock, receipt, err := grant.LocksOf[advisory.Key, *advisory.Lock](b.locker).Lock(t.Context(), advisory.ID(7), grant.Issue{Func: "public.receipt", Arg: "x"})
		got <- answer{lock, receipt, err}
	}()
	b.eventually(t, "it is behind the other", func() bool { return advisory.Waiting(b.locker, advisory.ID(7)) == 2 })
	leave()
	free()
	a := <-got
	require.NoError(t, a.err)
	require.EqualValues(t, 5, a.receipt)
	require.NoError(t, a.lock.Unlock(t.Context()))
}

// The pauses of a session that is parked are those of the call for which it asks: one that
// comes to its turn after another has waited for long does not have to wait for the end
// of the other's pause.
func TestLock_afterOneThatWasParkedForLongAsksAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := &modelServer{random: rand.New(rand.NewPCG(1, 2)), locks: make(map[string]*modelLock)}
		pool := server.pool(2)
		locker, err := advisory.New(pool, &advisory.Config{Reserve: advisory.NoReserve})
		require.NoError(t, err)
		others, seat := new(modelSession), lockid.OfNumber(7).Seat()
		for i := range lockid.Seats {
			require.True(t, server.lock(others, "seat "+strconv.Itoa(int(seat))+" "+strconv.Itoa(i), false, 0))
		}
		for i := range lockid.Places {
			require.True(t, server.lock(others, "place "+strconv.Itoa(int(seat)+i), false, 0))
		}
		slowest := time.Duration(0)
		for range 10 {
			require.True(t, server.lock(others, "7", false, 0))
			ctx, cancel := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() { _, err := locker.Lock(ctx, advisory.ID(7)); left <- err }()
			time.Sleep(time.Minute) //nolint:forbidigo // in a bubble, where time is not real
			got := make(chan *advisory.Lock, 1)
			go func() {
				lock, err := locker.Lock(t.Context(), advisory.ID(7))
				if err != nil {
					t.Error(err)
				}
				got <- lock
			}()
			synctest.Wait()
			require.True(t, server.unlock(others, "7"))
			cancel()
			require.ErrorIs(t, <-left, context.Canceled)
			start := time.Now()
			lock := <-got
			slowest = max(slowest, time.Since(start))
			require.NoError(t, lock.Unlock(t.Context()))
		}
		require.NoError(t, locker.Close(t.Context()))
		pool.Close()
		server.work.Wait()
		require.Less(t, slowest, 100*time.Millisecond)
	})
}
