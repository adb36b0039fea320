package advisory_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// trial is a test, and where it is to run.
type trial struct {
	*testing.T
	*bundle
}

// behaviours are what a Locker does wherever it works at all.
var behaviours = map[string]func(trial){
	"TryLock":                      trial.tryLockHoldsUntilUnlock,
	"Lock":                         trial.lockIsGrantedInTurn,
	"RLock":                        trial.readersShare,
	"LockAll":                      trial.allKeysOrNone,
	"cancelled":                    trial.cancelledWaitLeavesNothing,
	"lost":                         trial.lossIsNoticed,
	"unlock on an ended context":   trial.unlockWorksOnAnEndedContext,
	"settings":                     trial.settingsArePutBack,
	"what the connection had left": trial.leftoverIsCleared,
}

func (on trial) tryLockHoldsUntilUnlock() {
	t, b := on.T, on.bundle
	_, other := b.another(t, &advisory.Config{SessionPooler: true})
	for _, key := range []advisory.Key{advisory.ID(7), advisory.ID(-7), advisory.Pair(-7, 7), advisory.Name("case 45")} {
		for range 20 {
			lock, err := b.locker.TryLock(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, int(lock.BackendPID()), scan[int](t, b, "SELECT pid "+advisoryLocks+" AND granted"))
			_, err = other.TryLock(t.Context(), key)
			require.ErrorIs(t, err, advisory.ErrNotAcquired)
			require.NoError(t, lock.Unlock(t.Context()))
			require.Zero(t, b.granted(t), "free when Unlock returns")
		}
	}
	require.EqualValues(t, 1, b.pool.Stat().NewConnsCount())
	b.leakCheck(t)
}

func (on trial) lockIsGrantedInTurn() {
	t, b := on.T, on.bundle
	_, other := b.another(t, &advisory.Config{SessionPooler: true})
	lock, err := b.locker.Lock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	for range 5 {
		got := b.lockInBackground(t, other, advisory.ID(7))
		require.NoError(t, lock.Unlock(t.Context()))
		lock = <-got
		require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))

		got = b.lockInBackground(t, b.locker, advisory.ID(7))
		require.NoError(t, lock.Unlock(t.Context()))
		lock = <-got
		require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
	}
	require.NoError(t, lock.Unlock(t.Context()))
	b.leakCheck(t)
}

func (on trial) readersShare() {
	t, b := on.T, on.bundle
	_, other := b.another(t, &advisory.Config{SessionPooler: true})
	first, err := b.locker.RLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	second, err := other.RLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.Equal(t, 2, b.granted(t))
	require.NotEqual(t, first.BackendPID(), second.BackendPID())
	_, err = other.TryLock(t.Context(), advisory.ID(7))
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.NoError(t, first.Unlock(t.Context()))
	require.True(t, b.isHeldBy(t, 7, second.BackendPID()))
	require.NoError(t, second.Unlock(t.Context()))
	b.leakCheck(t)
}

func (on trial) allKeysOrNone() {
	t, b := on.T, on.bundle
	_, other := b.another(t, &advisory.Config{SessionPooler: true})
	held, err := other.TryLock(t.Context(), advisory.ID(8))
	require.NoError(t, err)
	_, err = b.locker.TryLockAll(t.Context(), ids(7, 8, 9)...)
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.Equal(t, 1, b.granted(t))

	got := make(chan *advisory.Lock, 1)
	go func() {
		lock, err := b.locker.LockAll(context.Background(), ids(7, 8, 9)...)
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	b.eventually(t, "it waits on the server", func() bool { return b.waiting(t) == 1 })
	require.NoError(t, held.Unlock(t.Context()))
	lock := <-got
	require.Equal(t, 3, scan[int](t, b, "SELECT count(*) "+advisoryLocks+" AND granted AND pid = $1", int(lock.BackendPID())))
	require.NoError(t, lock.Unlock(t.Context()))
	require.Zero(t, b.granted(t))
	b.leakCheck(t)
}

func (on trial) cancelledWaitLeavesNothing() {
	t, b := on.T, on.bundle
	holder := b.session(t)
	for range 3 {
		exec(t, holder, "SELECT pg_advisory_lock(7)")
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() {
			_, err := b.locker.Lock(ctx, advisory.ID(7))
			got <- err
		}()
		b.eventually(t, "it waits on the server", func() bool { return b.waiting(t) == 1 })
		cancel()
		require.ErrorIs(t, <-got, context.Canceled)
		exec(t, holder, "SELECT pg_advisory_unlock(7)")
		b.leakCheck(t)
	}
}

func (on trial) lossIsNoticed() {
	t, b := on.T, on.bundle
	for range 3 {
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		b.terminate(t, lock.BackendPID())
		require.Less(t, noticed(t, lock), 4*time.Second, "before the next heartbeat")
		require.ErrorIs(t, lock.Err(), advisory.ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost)
		b.leakCheck(t)
	}
}

func (on trial) unlockWorksOnAnEndedContext() {
	t, b := on.T, on.bundle
	ctx, cancel := context.WithCancel(t.Context())
	lock, err := b.locker.TryLock(ctx, advisory.ID(7))
	require.NoError(t, err)
	cancel()
	require.NoError(t, lock.Unlock(ctx), "case 7")
	require.Zero(t, b.granted(t))
	require.EqualValues(t, 1, b.pool.Stat().NewConnsCount())
	b.leakCheck(t)
}

func (on trial) settingsArePutBack() {
	t, b := on.T, on.bundle
	pool, locker := b.another(t, &advisory.Config{SessionPooler: true}, maxConns(2), setting("application_name", "billing"))
	observe := settingsIn(t, pool, settingsPutBack(b))
	before := observe()
	require.Equal(t, "billing", before["application_name"])
	for _, m := range locking {
		lock, err := m.call(t.Context(), locker)
		require.NoError(t, err, m.name)
		require.NoError(t, advisory.OnSession(lock, func(conn *pgx.Conn) {
			held := settingsOf(t, conn, sessionSettings(b))
			require.Equal(t, "30000", held["tcp_user_timeout"], m.name)
			require.Contains(t, held["application_name"], "lock 7", m.name)
		}))
		require.NoError(t, lock.Unlock(t.Context()), m.name)
		require.Equal(t, before, observe(), m.name) // case 103
	}
	require.EqualValues(t, 1, pool.Stat().NewConnsCount())
	b.leakCheck(t)
}

// Case 48: what others have left on the session is not taken for the lock.
func (on trial) leftoverIsCleared() {
	t, b := on.T, on.bundle
	pool, locker := b.another(t, &advisory.Config{SessionPooler: true}, maxConns(2))
	_, err := pool.Exec(t.Context(), "SELECT pg_advisory_lock(7), pg_advisory_lock(8)")
	require.NoError(t, err)
	require.Equal(t, 2, b.granted(t))
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.Equal(t, 1, b.granted(t))
	require.NoError(t, lock.Unlock(t.Context()))
	require.EqualValues(t, 1, pool.Stat().NewConnsCount(), "on the session that had it")
	b.leakCheck(t)
}
