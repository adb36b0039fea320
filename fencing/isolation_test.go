package fencing_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

var levels = []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable}

// A transaction that has not written yet does not keep a new holder waiting.
// It is then too late for it, also where its snapshot shows the old mark.
func TestStamp_isWorthNothingToATransactionThatWritesAfterTheTakeover(t *testing.T) {
	t.Parallel()
	codes := map[pgx.TxIsoLevel]string{pgx.ReadCommitted: "LF001", pgx.RepeatableRead: "40001", pgx.Serializable: "40001"}
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.guarded(t, "exports", "nightly")
			old := b.lock(t, b.fencer, "nightly")
			tx, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(t.Context()) }()
			require.NoError(t, old.Stamp(t.Context(), tx))
			require.Equal(t, 2, one[int](t, tx, `SELECT count(*) FROM exports`))

			b.terminate(t, old)
			current, err := b.another(t).TryLock(t.Context(), "nightly")
			require.NoError(t, err)
			require.Greater(t, current.Token(), old.Token())

			err = fencing.Translate(write(t.Context(), "exports", 3)(tx))
			requireCode(t, err, codes[level])
			if level == pgx.ReadCommitted {
				require.ErrorIs(t, err, fencing.ErrStale)
			}
			require.NoError(t, tx.Rollback(t.Context()))
			require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
		})
	}
}

// The same when the new holder has written and committed meanwhile.
func TestStamp_isWorthNothingAfterTheNewHoldersCommit(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.guarded(t, "exports", "nightly")
			old := b.lock(t, b.fencer, "nightly")
			tx, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(t.Context()) }()
			require.NoError(t, old.Stamp(t.Context(), tx))

			require.NoError(t, old.Unlock(t.Context()))
			current := b.lock(t, b.fencer, "nightly")
			require.NoError(t, current.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)))

			require.Error(t, write(t.Context(), "exports", 4)(tx))
			require.Error(t, tx.Commit(t.Context()))
			require.Equal(t, "(1,one) (2,two) (3,written)", b.contents(t, "exports"))
		})
	}
}

func TestStamp_letsTwoTransactionsOfOneHolderWriteAtOnce(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.guarded(t, "exports", "nightly")
			lease := b.lock(t, b.fencer, "nightly")
			var txs [2]pgx.Tx
			for i := range txs {
				tx, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
				require.NoError(t, err)
				defer func() { _ = tx.Rollback(t.Context()) }()
				// To wait for the other one is to fail.
				_, err = tx.Exec(t.Context(), `SET LOCAL lock_timeout = '10s'`)
				require.NoError(t, err)
				require.NoError(t, lease.Stamp(t.Context(), tx))
				txs[i] = tx
			}
			for round := range 2 {
				for i, tx := range txs {
					require.NoError(t, write(t.Context(), "exports", 10*(i+1)+round)(tx))
				}
			}
			require.NoError(t, txs[1].Commit(t.Context()))
			require.NoError(t, txs[0].Commit(t.Context()))
			require.Equal(t, "(1,one) (10,written) (11,written) (2,two) (20,written) (21,written)", b.contents(t, "exports"))
		})
	}
}
