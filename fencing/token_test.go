package fencing_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
)

const issueWithLockSQL = `SELECT CASE WHEN pg_try_advisory_lock(hashtextextended($1, 0)) THEN fencing.issue($1) END`

func TestToken_startsAtOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Equal(t, fencing.Token(1), b.lock(t, b.fencer, "nightly").Token())
	require.Equal(t, fencing.Token(1), b.mark(t, "nightly"))
}

func TestToken_isNotUsedUpByALockThatIsNotGranted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held := b.lock(t, b.fencer, "nightly")
	_, err := b.another(t).TryLock(t.Context(), "nightly")
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.Equal(t, held.Token(), b.mark(t, "nightly"))
	require.Equal(t, int64(held.Token()), one[int64](t, b.observer, `SELECT last_value FROM fencing.token`))
}

func TestToken_growsAfterTheSequenceWasSetBack(t *testing.T) {
	t.Parallel()
	for name, back := range map[string]string{
		"setval":                  `SELECT setval('fencing.token', 1)`,
		"setval as if never used": `SELECT setval('fencing.token', 1, false)`,
		"restart":                 `ALTER SEQUENCE fencing.token RESTART`,
		"restart with":            `ALTER SEQUENCE fencing.token RESTART WITH 2`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.guarded(t, "exports", "nightly")
			for range 9 {
				require.NoError(t, b.lock(t, b.fencer, "hourly").Unlock(t.Context()))
			}
			old := b.lock(t, b.fencer, "nightly")
			require.NoError(t, old.Unlock(t.Context()))
			b.exec(t, back)

			// More than once: the sequence stays behind for a while.
			for range 3 {
				current := b.lock(t, b.fencer, "nightly")
				require.Greater(t, current.Token(), old.Token())
				require.Equal(t, current.Token(), b.mark(t, "nightly"))
				require.NoError(t, current.InTx(t.Context(), b.pool, write(t.Context(), "exports", 2+int(current.Token()))))
				require.ErrorIs(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 1000)), fencing.ErrStale)
				require.NoError(t, current.Unlock(t.Context()))
				old = current
			}
		})
	}
}

func TestToken_isOutOfReachOfRestartIdentity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE numbered (id bigint GENERATED ALWAYS AS IDENTITY, note text)`)
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "numbered", "nightly"))
	old := b.lock(t, b.fencer, "nightly")
	require.NoError(t, old.Unlock(t.Context()))
	current := b.lock(t, b.fencer, "nightly")
	require.NoError(t, current.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO numbered (note) VALUES ('one'), ('two')`)
		return err
	}))
	require.NoError(t, current.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `TRUNCATE numbered RESTART IDENTITY CASCADE`)
		return err
	}))
	require.Equal(t, int64(current.Token()), one[int64](t, b.observer, `SELECT last_value FROM fencing.token`))
	require.Equal(t, current.Token(), b.mark(t, "nightly"))
	require.NoError(t, current.Unlock(t.Context()))
	require.Equal(t, current.Token()+1, b.lock(t, b.fencer, "nightly").Token())
}

func TestIssue_isRefusedWhileAnotherSessionHoldsTheLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held := b.lock(t, b.fencer, "nightly")
	var token int64
	err := b.observer.QueryRow(t.Context(), `SELECT fencing.issue('nightly')`).Scan(&token)
	requireCode(t, err, "55006")
	require.ErrorContains(t, err, `another session holds the lock of resource "nightly"`)
	require.Equal(t, held.Token(), b.mark(t, "nightly"))
	require.NoError(t, held.Unlock(t.Context()))
	b.waitForNoLock(t)
}

func TestIssue_worksFromSQLAndLeavesTheLockAsItWas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	old := b.lock(t, b.fencer, "nightly")
	require.NoError(t, old.Unlock(t.Context()))

	token := one[int64](t, b.observer, issueWithLockSQL, "nightly")
	require.Greater(t, fencing.Token(token), old.Token())
	require.Equal(t, int64(1), one[int64](t, b.observer, advisoryLocksSQL))
	_, err := b.fencer.TryLock(t.Context(), "nightly")
	require.ErrorIs(t, err, advisory.ErrNotAcquired)

	tx, err := b.observer.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT fencing.stamp('nightly', $1)`, token)
	require.NoError(t, err)
	require.NoError(t, write(t.Context(), "exports", 3)(tx))
	require.NoError(t, tx.Commit(t.Context()))

	// One unlock is enough.
	require.True(t, one[bool](t, b.observer, `SELECT pg_advisory_unlock(hashtextextended('nightly', 0))`))
	require.Greater(t, int64(b.lock(t, b.fencer, "nightly").Token()), token)
}

func TestIssue_namesTheSessionWhoseOldTransactionIsOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old, tx := inFlight(t, b)
	require.Equal(t, -int64(tx.Conn().PgConn().PID()), one[int64](t, b.observer, issueWithLockSQL, "nightly"))
	require.Equal(t, old.Token(), b.mark(t, "nightly"))
	require.NoError(t, tx.Commit(t.Context()))
	require.Greater(t, one[int64](t, b.observer, `SELECT fencing.issue('nightly')`), int64(old.Token()))
}

func TestIssue_isDurableWhateverTheRoleIsSetTo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for set, want := range map[string]string{
		"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply",
	} {
		pool := b.db.Pool(t, with("synchronous_commit", set))
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
			require.Positive(t, one[int64](t, tx, issueWithLockSQL, "nightly"), set)
			_, err := tx.Exec(t.Context(), `SELECT pg_advisory_unlock_all(); SET CONSTRAINTS ALL IMMEDIATE`)
			require.NoError(t, err)
			require.Equal(t, want, one[string](t, tx, `SHOW synchronous_commit`), set)
			return nil
		}))
		// For that one transaction.
		require.Equal(t, set, one[string](t, pool, `SHOW synchronous_commit`))
	}
}
