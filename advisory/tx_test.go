package advisory_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func (b *bundle) rows(t *testing.T) int {
	t.Helper()
	return scan[int](t, b, "SELECT count(*) FROM t")
}

func insert(tx pgx.Tx) error {
	_, err := tx.Exec(context.Background(), "INSERT INTO t VALUES (1)")
	return err
}

func TestLockTx_runsOnTheSessionThatHolds(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	exec(t, b.session(t), "CREATE TABLE t (x int)")
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	mine := errors.New("mine")
	for range 3 {
		require.NoError(t, lock.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
			require.Equal(t, lock.BackendPID(), pidOf(t, tx))
			// Case 81: the lock in a transaction of the same session.
			_, err := tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(7)")
			require.NoError(t, err)
			return insert(tx)
		}))
		require.ErrorIs(t, lock.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error { return errors.Join(insert(tx), mine) }), mine)
		require.Panics(t, func() {
			_ = lock.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error { panic(insert(tx)) })
		})
		require.Error(t, lock.Tx(t.Context(), pgx.TxOptions{AccessMode: pgx.ReadOnly}, insert))
	}
	require.Equal(t, 3, b.rows(t))
	require.EqualValues(t, 1, b.pool.Stat().AcquiredConns(), "no other connection")
	require.NoError(t, lock.Err())
	require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
	require.NoError(t, lock.Unlock(t.Context()))
	require.ErrorIs(t, lock.Tx(t.Context(), pgx.TxOptions{}, insert), advisory.ErrUnlocked)
	b.leakCheck(t)
}

func TestLockTx_cannotCommitOnceTheLockIsLost(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.session(t), "CREATE TABLE t (x int)")
	_, other := b.another(t, nil)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	err = lock.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
		require.NoError(t, insert(tx))
		b.terminate(t, lock.BackendPID())
		next, err := other.Lock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		return next.Unlock(t.Context())
	})
	require.Error(t, err)
	require.Zero(t, b.rows(t))
	<-lock.Done()
	require.ErrorIs(t, lock.Err(), advisory.ErrLost)
	require.ErrorIs(t, lock.Tx(t.Context(), pgx.TxOptions{}, insert), advisory.ErrLost)
	require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost)
	b.leakCheck(t)
}

func TestLockTx_lossIsNoticedBetweenTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.NoError(t, lock.Tx(t.Context(), pgx.TxOptions{}, func(pgx.Tx) error { return nil }))
	b.terminate(t, lock.BackendPID())
	<-lock.Done()
	require.ErrorIs(t, lock.Tx(t.Context(), pgx.TxOptions{}, insert), advisory.ErrLost)
	b.leakCheck(t)
}

// The server's default is to find out that a client is gone when a statement ends.
func TestLockTx_hasTheServerLookForItsClient(t *testing.T) {
	t.Parallel()
	b := setup(t)
	looks := b.db.Server.Version() >= 140000 && strings.Contains(scan[string](t, b, "SELECT version()"), "linux")
	own, err := advisory.Open(t.Context(), b.via.DSN, b.usual(&advisory.Config{Heartbeat: time.Second, HeartbeatTimeout: 4 * time.Second, VanishTimeout: 6 * time.Second}))
	require.NoError(t, err)
	defer func() { require.NoError(t, own.Close(t.Context())) }()
	names := []string{"transaction_isolation", "transaction_read_only", "transaction_deferrable"}
	if looks {
		names = append(names, "client_connection_check_interval")
	}
	for locker, interval := range map[*advisory.Locker]string{b.locker: "10s", own: "2s"} {
		lock, err := locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		var before map[string]string
		require.NoError(t, advisory.OnSession(lock, func(conn *pgx.Conn) { before = settingsOf(t, conn, names) }))
		for options, want := range map[pgx.TxOptions][3]string{
			{}:                           {"read committed", "off", "off"},
			{IsoLevel: pgx.Serializable}: {"serializable", "off", "off"},
			{IsoLevel: pgx.Serializable, AccessMode: pgx.ReadOnly, DeferrableMode: pgx.Deferrable}: {"serializable", "on", "on"},
			{AccessMode: pgx.ReadOnly}: {"read committed", "on", "off"},
			{BeginQuery: "BEGIN ISOLATION LEVEL REPEATABLE READ -- as I like it"}:      {"repeatable read", "off", "off"},
			{BeginQuery: "BEGIN ISOLATION LEVEL REPEATABLE READ;", CommitQuery: "END"}: {"repeatable read", "off", "off"},
		} {
			require.NoError(t, lock.Tx(t.Context(), options, func(tx pgx.Tx) error {
				inside := settingsOf(t, tx.Conn(), names)
				require.Equal(t, want, [3]string{inside[names[0]], inside[names[1]], inside[names[2]]}, "%+v", options)
				if looks {
					require.Equal(t, interval, inside["client_connection_check_interval"])
				}
				return nil
			}))
			require.NoError(t, advisory.OnSession(lock, func(conn *pgx.Conn) { require.Equal(t, before, settingsOf(t, conn, names)) }))
		}
		require.Error(t, lock.Tx(t.Context(), pgx.TxOptions{IsoLevel: "no level"}, insert))
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

// A BEGIN that fails half way leaves no transaction on the session.
func TestLockTx_rollsBackWhatItCouldNotBegin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.session(t), "CREATE TABLE t (x int)")
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	err = lock.Tx(t.Context(), pgx.TxOptions{BeginQuery: "BEGIN; SELECT 1/0"}, func(pgx.Tx) error { panic("called") })
	require.ErrorContains(t, err, "division by zero")
	require.NoError(t, lock.Err())
	require.NoError(t, lock.Tx(t.Context(), pgx.TxOptions{}, insert))
	require.Equal(t, 1, b.rows(t))
	require.NoError(t, lock.Unlock(t.Context()))
	b.leakCheck(t)
}

func TestLockTx_oneAtATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	inside, goOn := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		first <- lock.Tx(context.Background(), pgx.TxOptions{}, func(pgx.Tx) error {
			close(inside)
			<-goOn
			return nil
		})
	}()
	<-inside
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, lock.Tx(ctx, pgx.TxOptions{}, insert), context.DeadlineExceeded, "it waits for its turn")

	unlocked := make(chan error, 1)
	go func() { unlocked <- lock.Unlock(context.Background()) }()
	<-lock.Done()
	require.Empty(t, unlocked, "Unlock waits, too")
	require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
	close(goOn)
	require.NoError(t, <-first)
	require.NoError(t, <-unlocked)
	b.leakCheck(t)
}

func TestLockTx_thatDoesNotEndIsEndedByUnlock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.session(t), "CREATE TABLE t (x int)")
	pool, locker := b.another(t, &advisory.Config{UnlockTimeout: 500 * time.Millisecond})
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	inside, goOn := make(chan struct{}), make(chan struct{})
	tx := make(chan error, 1)
	go func() {
		tx <- lock.Tx(context.Background(), pgx.TxOptions{}, func(tx pgx.Tx) error {
			err := insert(tx)
			close(inside)
			<-goOn
			return err
		})
	}()
	<-inside
	err = lock.Unlock(t.Context())
	require.ErrorContains(t, err, "was still running")
	b.noLockLeft(t)
	close(goOn)
	require.Error(t, <-tx)
	require.Zero(t, b.rows(t))
	b.eventually(t, "the pool is rid of it", func() bool { return pool.Stat().AcquiredConns() == 0 })
	_, err = locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
}
