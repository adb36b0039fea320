package fencing_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// A prepared transaction has no session, but it holds the next holder up as any
// other does.
func TestLock_waitsForAPreparedTransaction(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := setupOn(t, pgtest.NewWith(t, pgtest.PreparedTransactions))
			b.guarded(t, "exports", "nightly")
			old := b.lock(t, b.fencer, "nightly")
			conn, name := b.db.Conn(t), b.db.Name
			_, err := conn.Exec(t.Context(), `BEGIN ISOLATION LEVEL `+string(level)+`; SELECT fencing.stamp('nightly', 1);
				INSERT INTO exports VALUES (3, 'prepared'); PREPARE TRANSACTION '`+name+`'`)
			require.NoError(t, err)
			t.Cleanup(func() { _, _ = b.observer.Exec(context.Background(), `ROLLBACK PREPARED '`+name+`'`) })
			require.NoError(t, old.Unlock(t.Context()))

			require.Zero(t, one[int64](t, conn, issueWithLockSQL, "nightly"), "no PID to name")
			require.True(t, one[bool](t, conn, `SELECT pg_advisory_unlock(hashtextextended('nightly', 0))`))
			_, err = b.fencer.TryLock(t.Context(), "nightly")
			require.ErrorIs(t, err, advisory.ErrNotAcquired)
			require.Equal(t, old.Token(), b.mark(t, "nightly"))

			b.exec(t, `COMMIT PREPARED '`+name+`'`)
			current := b.lock(t, b.fencer, "nightly")
			require.Greater(t, current.Token(), old.Token())
			require.Equal(t, "(1,one) (2,two) (3,prepared)", b.contents(t, "exports"))
			require.ErrorIs(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 4)), fencing.ErrStale)
		})
	}
}
