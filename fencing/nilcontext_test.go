package fencing_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

func TestNilContext_isRefusedAndCostsTheCallOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	conn := b.db.Conn(t)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	work := func(context.Context, *fencing.Lease) error { panic("called") }
	inTx := func(pgx.Tx) error { panic("called") }

	var none context.Context
	for name, call := range map[string]func() error{
		"TryLock":           func() error { _, err := b.fencer.TryLock(none, "r"); return err },
		"Lock":              func() error { _, err := b.fencer.Lock(none, "r"); return err },
		"Do":                func() error { return b.fencer.Do(none, "r", work) },
		"TryDo":             func() error { return b.fencer.TryDo(none, "r", work) },
		"Lead":              func() error { return b.fencer.Lead(none, "r", work) },
		"Lease.Stamp":       func() error { return lease.Stamp(none, tx) },
		"Stamp":             func() error { return fencing.Stamp(none, tx, "nightly", lease.Token()) },
		"InTx on a pool":    func() error { return lease.InTx(none, b.pool, inTx) },
		"InTx on a conn":    func() error { return lease.InTx(none, b.observer, inTx) },
		"InTx of no Fencer": func() error { return (&fencing.Lease{}).InTx(none, b.pool, inTx) },
		"Exec":              func() error { _, err := lease.Exec(none, b.pool, "SELECT 1"); return err },
		"Guard":             func() error { return fencing.Guard(none, b.pool, "exports", "nightly") },
		"GuardBy":           func() error { return fencing.GuardBy(none, b.pool, "exports", "note") },
		"Unguard":           func() error { return fencing.Unguard(none, b.pool, "exports") },
		"Verify":            func() error { _, err := fencing.Verify(none, b.pool); return err },
	} {
		require.ErrorContains(t, call(), "the context is nil", name)
	}
	require.NoError(t, lease.Stamp(t.Context(), tx), "the transaction is unharmed")
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, lease.Unlock(none))
	b.exec(t, "SELECT 1")
	require.Zero(t, b.pool.Stat().AcquiredConns())
}
