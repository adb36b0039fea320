package fencing_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
)

func TestLock_fencesTheOldHolderBeforeTheNewOneWrites(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	old := b.lock(t, b.fencer, "nightly")
	require.NoError(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)))

	b.terminate(t, old)
	current := b.lock(t, b.another(t), "nightly")
	require.Greater(t, current.Token(), old.Token())
	require.Equal(t, current.Token(), b.mark(t, "nightly"))

	err := old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 4))
	require.ErrorIs(t, err, fencing.ErrStale)
	require.Equal(t, "(1,one) (2,two) (3,written)", b.contents(t, "exports"))
}

// As long as nobody else has locked, what the old holder does can harm nobody.
func TestInTx_worksAfterTheLossUntilTheNextHolder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	old := b.lock(t, b.fencer, "nightly")
	b.terminate(t, old)
	receive(t, old.Done())
	require.NoError(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)))
}

// inFlight is a transaction in which a holder has written before its session
// was lost.
func inFlight(t *testing.T, b *bundle) (old *fencing.Lease, tx pgx.Tx) {
	t.Helper()
	b.guarded(t, "exports", "nightly")
	old = b.lock(t, b.fencer, "nightly")
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	// Before the pool closes: an open transaction would keep it from that.
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	require.NoError(t, old.Stamp(t.Context(), tx))
	require.NoError(t, write(t.Context(), "exports", 3)(tx))
	b.terminate(t, old)
	return old, tx
}

// waitForIssue waits until a session that holds the lock has waited for tx, has
// given up and waits for it again.
func (b *bundle) waitForIssue(t *testing.T, tx pgx.Tx) {
	t.Helper()
	const waiting = `FROM pg_catalog.pg_stat_activity a
		JOIN pg_catalog.pg_locks l ON l.pid = a.pid AND l.locktype = 'advisory' AND l.granted
		WHERE a.datname = current_database() AND $1 = ANY (pg_blocking_pids(a.pid))`
	pid := tx.Conn().PgConn().PID()
	b.waitFor(t, "the new holder waits", `SELECT EXISTS (SELECT `+waiting+`)`, pid)
	since := one[string](t, b.observer, `SELECT coalesce(max(a.query_start), '-infinity')::text `+waiting, pid)
	b.waitFor(t, "the new holder waits again",
		`SELECT EXISTS (SELECT `+waiting+` AND a.query_start > $2::text::timestamptz)`, pid, since)
}

func TestLock_waitsForAnOpenTransactionInWhichTheOldHolderHasWritten(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		how  func(pgx.Tx, context.Context) error
		rows string
	}{
		"commit":   {pgx.Tx.Commit, "(1,one) (2,two) (3,written)"},
		"rollback": {pgx.Tx.Rollback, "(1,one) (2,two)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			old, tx := inFlight(t, b)
			result := lockInBackground(t.Context(), b.another(t), "nightly")
			b.waitForIssue(t, tx)
			require.Empty(t, result)
			require.Equal(t, old.Token(), b.mark(t, "nightly"))
			// The holding is not over, and it may go on in that transaction.
			_, err := tx.Exec(t.Context(), `UPDATE exports SET note = note`)
			require.NoError(t, err)

			require.NoError(t, end.how(tx, t.Context()))
			got := receive(t, result)
			require.NoError(t, got.err)
			require.Greater(t, got.lease.Token(), old.Token())
			require.Equal(t, got.lease.Token(), b.mark(t, "nightly"))
			require.Equal(t, end.rows, b.contents(t, "exports"))
			require.ErrorIs(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 4)), fencing.ErrStale)
		})
	}
}

// blockedBy is how an error names the transaction.
func blockedBy(tx pgx.Tx) string {
	return fmt.Sprintf("a transaction in which an earlier holder has written is still open, in the session with PID %d", tx.Conn().PgConn().PID())
}

// waitForOnlyLocksOf is waitForNoLock, but for that which a transaction shares
// since it has written.
func (b *bundle) waitForOnlyLocksOf(t *testing.T, tx pgx.Tx) {
	t.Helper()
	b.waitFor(t, "no advisory lock is left but that of the transaction",
		`SELECT (`+advisoryLocksSQL+` AND NOT (pid = $1 AND mode = 'ShareLock')) = 0`, tx.Conn().PgConn().PID())
}

func TestLock_leavesNothingWhenItsContextEndsBeforeTheOldTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old, tx := inFlight(t, b)
	ctx, cancel := context.WithCancel(t.Context())
	result := lockInBackground(ctx, b.another(t), "nightly")
	b.waitForIssue(t, tx)
	cancel()

	got := receive(t, result)
	require.ErrorIs(t, got.err, context.Canceled)
	require.ErrorContains(t, got.err, blockedBy(tx))
	require.Nil(t, got.lease)
	b.waitForOnlyLocksOf(t, tx)
	require.Equal(t, old.Token(), b.mark(t, "nightly"))
	// Nothing has superseded the old holder.
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, "(1,one) (2,two) (3,written)", b.contents(t, "exports"))
}

func TestTryLock_answersWhileTheOldHoldersTransactionIsOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old, tx := inFlight(t, b)
	pool := b.db.Pool(t, large)
	fencer := newFencer(t, pool, nil, nil)

	lease, err := fencer.TryLock(t.Context(), "nightly")
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.ErrorContains(t, err, blockedBy(tx))
	require.Nil(t, lease)
	b.waitForOnlyLocksOf(t, tx)
	require.Equal(t, old.Token(), b.mark(t, "nightly"))

	require.NoError(t, tx.Commit(t.Context()))
	lease, err = fencer.TryLock(t.Context(), "nightly")
	require.NoError(t, err)
	require.Greater(t, lease.Token(), old.Token())
}

// sessionSQL is what a session may carry from one user of its pool to the next.
const sessionSQL = `SELECT concat_ws(' ', pg_backend_pid(),
	(SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_catalog.pg_settings
		WHERE name IN ('lock_timeout', 'statement_timeout', 'synchronous_commit', 'search_path', 'application_name',
			'idle_in_transaction_session_timeout', 'transaction_isolation', 'role')),
	'stamps=' || coalesce(current_setting('fencing.stamps', true), ''),
	'locks=' || (` + advisoryLocksSQL + ` AND pid = pg_backend_pid()))`

func TestFencer_returnsConnectionsToThePoolAsTheyWere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, tx := inFlight(t, b)
	pool := b.db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	fencer := newFencer(t, pool, &advisory.Config{Reserve: advisory.NoReserve}, nil)
	before := one[string](t, pool, sessionSQL)

	// Not acquired, because of the transaction.
	_, err := fencer.TryLock(t.Context(), "nightly")
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.Equal(t, before, one[string](t, pool, sessionSQL))

	// The wait ends in vain.
	ctx, cancel := context.WithCancel(t.Context())
	result := lockInBackground(ctx, fencer, "nightly")
	b.waitForIssue(t, tx)
	cancel()
	require.ErrorIs(t, receive(t, result).err, context.Canceled)
	require.Equal(t, before, one[string](t, pool, sessionSQL))

	// The wait ends well.
	result = lockInBackground(t.Context(), fencer, "nightly")
	b.waitForIssue(t, tx)
	require.NoError(t, tx.Commit(t.Context()))
	got := receive(t, result)
	require.NoError(t, got.err)
	require.NoError(t, got.lease.Unlock(t.Context()))
	require.Equal(t, before, one[string](t, pool, sessionSQL))

	// Not acquired, because of the lock.
	b.exec(t, `SELECT pg_advisory_lock(`+advisory.Name("nightly").SQL()+`)`)
	_, err = fencer.TryLock(t.Context(), "nightly")
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	require.Equal(t, before, one[string](t, pool, sessionSQL))
}
