package advisory_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

var none context.Context

func TestNilContext_isRefusedWhereNothingIsHeldYet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key := advisory.ID(1)
	work := func(context.Context, *advisory.Lock) error { panic("called") }
	tx, err := b.session(t).Begin(t.Context())
	require.NoError(t, err)
	s := b.openSession(t)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(2))
	require.NoError(t, err)

	for name, call := range map[string]func() error{
		"Open":         func() error { _, err := advisory.Open(none, b.db.DSN, nil); return err },
		"TryLock":      func() error { _, err := b.locker.TryLock(none, key); return err },
		"Lock":         func() error { _, err := b.locker.Lock(none, key); return err },
		"TryRLock":     func() error { _, err := b.locker.TryRLock(none, key); return err },
		"RLock":        func() error { _, err := b.locker.RLock(none, key); return err },
		"TryLockAll":   func() error { _, err := b.locker.TryLockAll(none, key); return err },
		"LockAll":      func() error { _, err := b.locker.LockAll(none, key); return err },
		"Do":           func() error { return b.locker.Do(none, key, work) },
		"TryDo":        func() error { return b.locker.TryDo(none, key, work) },
		"Lead":         func() error { return b.locker.Lead(none, key, work) },
		"TryAcquire":   func() error { _, err := b.locker.Semaphore("s", 1).TryAcquire(none); return err },
		"Acquire":      func() error { _, err := b.locker.Semaphore("s", 1).Acquire(none); return err },
		"Session":      func() error { _, err := b.locker.Session(none); return err },
		"of a Session": func() error { _, err := s.TryLock(none, key); return err },
		"all of one":   func() error { _, err := s.TryLockAll(none, key); return err },
		"Tx": func() error {
			return lock.Tx(none, pgx.TxOptions{}, func(pgx.Tx) error { panic("called") })
		},
		"LockTx":    func() error { return advisory.LockTx(none, tx, key) },
		"TryLockTx": func() error { return advisory.TryLockTx(none, tx, key) },
		"Inspect":   func() error { _, err := advisory.Inspect(none, b.raw); return err },
	} {
		require.ErrorContains(t, call(), "the context is nil", name)
	}
	require.NoError(t, advisory.LockTx(t.Context(), tx, key), "the transaction is unharmed")
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, s.Close(t.Context()))
	b.leakCheck(t)
	require.Empty(t, advisory.Leftovers(b.locker))
}

func TestNilContext_doesNotKeepAnythingHeld(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	ctx, cancel := lock.Context(none)
	defer cancel()
	require.NoError(t, ctx.Err())
	require.NoError(t, lock.Unlock(none))
	<-ctx.Done() // which follows
	require.ErrorIs(t, context.Cause(ctx), advisory.ErrUnlocked)
	require.NoError(t, lock.Unlock(none), "once more")

	s := b.openSession(t)
	inSession, err := s.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	require.NoError(t, inSession.Unlock(none))
	_, err = s.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	require.NoError(t, s.Close(none))

	_, err = b.locker.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	require.NoError(t, b.locker.Close(none))
	b.leakCheck(t)
}
