package advisory_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Functions of Lock.Tx can lock on the session what it holds already. An Unlock that says
// nil has freed the key all the same, and nothing else.
func TestSession_unlockFreesWhatATransactionHasLockedToo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	seven := advisory.ID(7)
	for name, c := range map[string]struct {
		key    advisory.Key
		shared bool
		locks  string // in the transaction
	}{
		"once more":              {key: seven, locks: "pg_advisory_lock(7)"},
		"tried once more":        {key: seven, locks: "pg_try_advisory_lock(7)"},
		"many times":             {key: seven, locks: "pg_advisory_lock(7), pg_advisory_lock(7), pg_advisory_lock(7), pg_advisory_lock(7)"},
		"in the other mode":      {key: seven, locks: "pg_advisory_lock_shared(7)"},
		"in both":                {key: seven, locks: "pg_advisory_lock_shared(7), pg_advisory_lock(7), pg_advisory_lock_shared(7)"},
		"shared once more":       {key: seven, shared: true, locks: "pg_advisory_lock_shared(7)"},
		"shared and exclusively": {key: seven, shared: true, locks: "pg_advisory_lock_shared(7), pg_advisory_lock(7)"},
		"a pair":                 {key: advisory.Pair(-1, 7), locks: "pg_advisory_lock(-1, 7), pg_advisory_lock_shared(-1, 7)"},
		"for the transaction":    {key: seven, locks: "pg_advisory_xact_lock(7)"},
	} {
		s := b.openSession(t)
		other, err := s.TryLock(t.Context(), advisory.ID(8))
		require.NoError(t, err)
		try := s.TryLock
		if c.shared {
			try = s.TryRLock
		}
		lock, err := try(t.Context(), c.key)
		require.NoError(t, err)
		require.NoError(t, other.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), "SELECT "+c.locks)
			return err
		}))
		if c.shared { // another of the Session's stays as it is
			second, err := try(t.Context(), c.key)
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(t.Context()), name)
			require.True(t, b.isHeldBy(t, 7, s.BackendPID()), name)
			lock = second
		}
		require.NoError(t, lock.Unlock(t.Context()), name)
		require.Equal(t, 1, b.granted(t), name)
		require.True(t, b.isHeldBy(t, 8, s.BackendPID()), name)
		again, err := b.locker.TryLock(t.Context(), c.key)
		require.NoError(t, err, name)
		require.NoError(t, again.Unlock(t.Context()))
		require.NoError(t, other.Unlock(t.Context()))
		require.NoError(t, s.Close(t.Context()))
	}
	require.EqualValues(t, 2, b.pool.Stat().NewConnsCount(), "no session was ended")
	b.leakCheck(t)
}

// All of several locks are freed, with those of other calls in the same round trip.
func TestSession_unlockOfSeveralFreesWhatATransactionHasLockedToo(t *testing.T) {
	t.Parallel()
	b := setupWith(t, pgtest.ReadableLog)
	s := b.openSession(t)
	all, err := s.TryLockAll(t.Context(), ids(1, 2, 3)...)
	require.NoError(t, err)
	var locks []*advisory.Lock
	for i := range 20 {
		lock, err := s.TryLock(t.Context(), advisory.ID(int64(10+i)))
		require.NoError(t, err)
		locks = append(locks, lock)
	}
	require.NoError(t, all.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT pg_advisory_lock(i) FROM generate_series(1, 40) i")
		return err
	}))
	results := make(chan error)
	for _, lock := range append(locks, all) {
		go func() { results <- lock.Unlock(t.Context()) }()
	}
	for range len(locks) + 1 {
		require.NoError(t, <-results)
	}
	require.Equal(t, 40-len(locks)-3, b.granted(t), "what no Lock is of is freed at the end of the Session")
	require.NoError(t, s.Close(t.Context()))
	require.Zero(t, b.granted(t))
	require.NotContains(t, b.db.Log(t), "you don't own", "none was unlocked too often")
}
