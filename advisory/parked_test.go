package advisory_test

import (
	"context"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/grant"
	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// fullHouse is a key that is locked, and at which all seats are taken: who wants it
// exclusively is parked. Free unlocks the key.
func (b *bundle) fullHouse(t *testing.T, id int64) (free func()) {
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
	free := b.fullHouse(t, 7)
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
	free := b.fullHouse(t, 7)
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
