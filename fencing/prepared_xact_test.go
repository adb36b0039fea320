package fencing_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// A prepared transaction that has drawn a token would keep lockers and writers waiting for
// as long as nobody ends it.
func TestIssue_cannotBePrepared(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	old := b.lock(t, b.fencer, "nightly")
	require.NoError(t, old.Unlock(t.Context()))
	for _, prepare := range []string{
		`PREPARE TRANSACTION 'drawn'`, `prepare  transaction 'drawn'`, "PREPARE\n/* of all */ -- things\nTRANSACTION 'drawn'",
		"PREPARE --\rTRANSACTION 'drawn'", `SELECT 1; PREPARE TRANSACTION 'drawn'`, `/* first */ PREPARE TRANSACTION 'drawn'`,
	} {
		_, err := b.observer.Exec(t.Context(), `BEGIN; SELECT fencing.issue('nightly')`)
		require.NoError(t, err)
		_, err = b.observer.Exec(t.Context(), prepare)
		requireCode(t, err, "0A000")
		require.ErrorContains(t, err, "has drawn a token")
		require.Zero(t, one[int](t, b.observer, `SELECT count(*) FROM pg_catalog.pg_prepared_xacts WHERE database = current_database()`))
		require.Equal(t, old.Token(), b.mark(t, "nightly"))
	}
	// A text that only mentions it is none.
	_, err := b.observer.Exec(t.Context(), `BEGIN; SELECT fencing.issue('nightly'), 'to prepare transaction x'; COMMIT`)
	require.NoError(t, err)
	require.Greater(t, b.mark(t, "nightly"), old.Token())
}

// A guarded write may be prepared. It keeps the next holder waiting, and the report says who
// it is.
func TestVerify_findsAPreparedWriter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	tx, err := b.db.Conn(t).Begin(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Stamp(t.Context(), tx))
	require.NoError(t, write(t.Context(), "exports", 3)(tx))
	gid := strings.Repeat("writer", 3) + b.db.Name
	_, err = tx.Exec(t.Context(), `PREPARE TRANSACTION '`+gid+`'`)
	require.NoError(t, err)
	end := b.db.Conn(t)
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		_, _ = end.Exec(context.Background(), `ROLLBACK PREPARED '`+gid+`'`) // so that the database can be dropped
	})
	require.NoError(t, lease.Unlock(t.Context()))
	require.Zero(t, one[int64](t, b.observer, `SELECT fencing.issue('nightly')`), "it waits for a session that has no PID")
	requireFound(t, b.observer, "", []string{`the prepared transaction "` + gid + `" keeps holders of a resource waiting`})
	_, err = end.Exec(t.Context(), `COMMIT PREPARED '`+gid+`'`)
	require.NoError(t, err)
	requireProblems(t, b)
	require.Greater(t, b.lock(t, b.fencer, "nightly").Token(), lease.Token())
}

// A transaction that was prepared before a promotion can be committed after it. Until then
// no new token is drawn for what it has written to, so that it commits before all that a new
// holder writes.
func TestFailover_ofAPreparedWriterKeepsTheNextHolderWaiting(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	old := on(t, pair.Primary)
	old.guarded(t, "exports", "nightly")
	lease := old.lock(t, old.fencer, "nightly")
	_, err := old.observer.Exec(t.Context(), `BEGIN; SELECT fencing.stamp('nightly', 1); INSERT INTO exports VALUES (3, 'prepared'); PREPARE TRANSACTION 'writer'`)
	require.NoError(t, err)
	pair.CatchUp(t)
	pair.CutReplication(t)
	pair.Promote(t)
	promoted := on(t, pair.Standby)
	require.ErrorIs(t, lease.InTx(t.Context(), promoted.pool, write(t.Context(), "exports", 4)), fencing.ErrStale)
	require.Zero(t, one[int64](t, promoted.observer, issueWithLockSQL, "nightly"))
	require.Equal(t, "(1,one) (2,two)", promoted.contents(t, "exports"))
	_, err = promoted.observer.Exec(t.Context(), `COMMIT PREPARED 'writer'`)
	require.NoError(t, err)
	require.Greater(t, one[fencing.Token](t, promoted.observer, issueWithLockSQL, "nightly"), lease.Token())
	require.Equal(t, "(1,one) (2,two) (3,prepared)", promoted.contents(t, "exports"))
}
