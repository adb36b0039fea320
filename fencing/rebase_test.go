package fencing_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestRebase_canBeCalledAgain(t *testing.T) {
	t.Parallel()
	_, clone, _ := cloned(t, pgtest.New(t))
	var last *fencing.Lease
	for i := range 3 {
		clone.exec(t, `SELECT fencing.rebase()`)
		if last != nil {
			require.ErrorIs(t, last.InTx(t.Context(), clone.pool, write(t.Context(), "exports", 100)), fencing.ErrStale)
		}
		lease := clone.lock(t, clone.fencer, "nightly")
		if last != nil {
			require.Greater(t, lease.Token(), last.Token())
		}
		require.NoError(t, lease.InTx(t.Context(), clone.pool, write(t.Context(), "exports", i+3)))
		require.NoError(t, lease.Unlock(t.Context()))
		last = lease
		requireProblems(t, clone)
	}
}

// A token that is being issued while the tokens are rebased is from before or from
// after, also if it is the first one of its resource.
func TestRebase_outdatesWhatIsBeingIssued(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		for _, resource := range []string{"nightly", "new"} {
			b := setup(t)
			b.guarded(t, "exports", resource)
			if resource == "nightly" {
				require.NoError(t, b.lock(t, b.fencer, resource).Unlock(t.Context()))
			}
			r := &rebasing{bundle: b, resource: resource, level: level, conn: b.db.Conn(t)}
			before := r.issueFirst(t)
			r.requireWorth(t, before, fencing.ErrStale)
			after, err := r.rebaseFirst(t)
			switch level {
			case pgx.ReadCommitted:
				require.NoError(t, err)
				require.Greater(t, after, before)
				r.requireWorth(t, after, nil)
			default: // the mark is newer than the snapshot
				requireCode(t, err, "40001")
			}
			r.requireWorth(t, before, fencing.ErrStale)
		}
	}
}

// A snapshot from before does not know of the rebase, and no mark of the resource is
// there that it could fail to serialize with.
func TestRebase_isSeenByAFirstMarkOfAnOlderSnapshot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "new")
	r := &rebasing{bundle: b, resource: "new", level: pgx.RepeatableRead, conn: b.db.Conn(t)}
	_, err := r.rebaseFirst(t)
	requireCode(t, err, "40001")
}

// rebasing is a resource whose token is issued at the same time as the tokens are
// rebased.
type rebasing struct {
	*bundle
	resource string
	level    pgx.TxIsoLevel // of issue
	conn     *pgx.Conn      // issues
}

const issueForSQL = `SELECT CASE WHEN pg_try_advisory_lock(hashtextextended($1, 0)) THEN fencing.issue($1) END`

// issueFirst returns a token whose transaction ends while rebase waits for it.
func (r *rebasing) issueFirst(t *testing.T) fencing.Token {
	t.Helper()
	conn := r.db.Conn(t)
	issuing, err := r.conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: r.level})
	require.NoError(t, err)
	token := one[fencing.Token](t, issuing, issueForSQL, r.resource)
	done := make(chan error, 1)
	// Ends with the statement; the test waits for it.
	go func() {
		_, err := conn.Exec(t.Context(), `SELECT fencing.rebase()`)
		done <- err
	}()
	r.waitFor(t, "rebase waits", `SELECT cardinality(pg_catalog.pg_blocking_pids($1)) > 0`, conn.PgConn().PID())
	require.NoError(t, issuing.Commit(t.Context()))
	require.NoError(t, receive(t, done))
	require.Equal(t, token, r.mark(t, r.resource))
	return token
}

// rebaseFirst returns a token that is issued after it has waited for rebase, or in a
// snapshot from before.
func (r *rebasing) rebaseFirst(t *testing.T) (token fencing.Token, err error) {
	t.Helper()
	issuing, err := r.conn.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: r.level})
	require.NoError(t, err)
	defer func() { _ = issuing.Rollback(t.Context()) }()
	require.Equal(t, 1, one[int](t, issuing, `SELECT 1`)) // a snapshot

	tx, err := r.db.Conn(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT fencing.rebase()`)
	require.NoError(t, err)
	done := make(chan error, 1)
	// Ends with its statements; the test waits for it.
	go func() {
		var err error
		for token <= 0 && err == nil { // it does not wait for long
			err = issuing.QueryRow(t.Context(), issueForSQL, r.resource).Scan(&token)
		}
		done <- err
	}()
	r.waitFor(t, "issue waits", `SELECT cardinality(pg_catalog.pg_blocking_pids($1)) > 0`, r.conn.PgConn().PID())
	require.NoError(t, tx.Commit(t.Context()))
	if err := receive(t, done); err != nil {
		return 0, err
	}
	return token, issuing.Commit(t.Context())
}

// requireWorth requires that a write with the token is refused with an error, or not
// if that is nil, at every isolation level.
func (r *rebasing) requireWorth(t *testing.T, token fencing.Token, want error) {
	t.Helper()
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		err := pgx.BeginTxFunc(t.Context(), r.pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			if err := fencing.Stamp(t.Context(), tx, r.resource, token); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), `UPDATE exports SET note = 'written'`)
			return fencing.Translate(err)
		})
		require.ErrorIs(t, err, want, "%s, %s", r.resource, level)
	}
}

// transaction begins one on a connection of its own.
func (b *bundle) transaction(t *testing.T, level pgx.TxIsoLevel) (tx pgx.Tx, exec func(sql string)) {
	t.Helper()
	tx, err := b.db.Conn(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
	require.NoError(t, err)
	return tx, func(sql string) {
		_, err := tx.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
}

// In read committed neither readers nor writers wait for it, nor it for them.
func TestRebase_leavesReadersAndWritersAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.exec(t, `CREATE TABLE orders (id int, resource text)`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "orders", "resource"))
	lease := b.lock(t, b.fencer, "nightly")
	_, read := b.transaction(t, pgx.ReadCommitted)
	writing, write1 := b.transaction(t, pgx.ReadCommitted)
	rebasing, rebase := b.transaction(t, pgx.ReadCommitted)
	read(`LOCK TABLE fencing.origin, fencing.resource, fencing.guarded IN ACCESS SHARE MODE`) // as pg_dump does
	require.NoError(t, lease.Stamp(t.Context(), writing))
	write1(`INSERT INTO orders VALUES (1, 'nightly'); UPDATE exports SET note = 'written'`)

	rebase(`SET LOCAL lock_timeout = '5s'; SELECT fencing.rebase()`)
	_, err := fencing.Verify(t.Context(), b.pool)
	require.NoError(t, err)
	require.NoError(t, lease.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO orders VALUES (2, 'nightly')`)
		return err
	}))
	require.NoError(t, writing.Commit(t.Context()))
	require.NoError(t, rebasing.Commit(t.Context()))
	require.ErrorIs(t, lease.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)), fencing.ErrStale)
}

// In the other levels it waits for those that have written, without a deadlock, and
// who has not written yet can't any more.
func TestRebase_andOlderSnapshots(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.guarded(t, "reports", "hourly")
	b.exec(t, `SELECT fencing.rebase()`) // no mark has a timeline
	leases := []*fencing.Lease{b.lock(t, b.fencer, "nightly"), b.lock(t, b.fencer, "hourly")}
	b.exec(t, `UPDATE fencing.resource SET epoch = epoch`)
	writing, write1 := b.transaction(t, pgx.RepeatableRead)
	late, write2 := b.transaction(t, pgx.RepeatableRead)
	for _, lease := range leases {
		require.NoError(t, lease.Stamp(t.Context(), writing))
		require.NoError(t, lease.Stamp(t.Context(), late))
	}
	write2(`SELECT 1`)
	write1(`UPDATE reports SET note = 'written'`)
	conn := b.db.Conn(t)
	done := make(chan error, 1)
	// Ends with the statement; the test waits for it.
	go func() {
		_, err := conn.Exec(t.Context(), `SELECT fencing.rebase()`)
		done <- err
	}()
	b.waitFor(t, "rebase waits", `SELECT cardinality(pg_catalog.pg_blocking_pids($1)) > 0`, conn.PgConn().PID())
	write1(`UPDATE exports SET note = 'written'`)
	require.NoError(t, writing.Commit(t.Context()))
	require.NoError(t, receive(t, done))
	_, err := late.Exec(t.Context(), `UPDATE exports SET note = 'late'`)
	requireCode(t, err, "40001")
}

func TestRebase_refusesAnOlderSnapshot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		err := pgx.BeginTxFunc(t.Context(), b.pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `SELECT fencing.rebase()`)
			return err
		})
		requireCode(t, err, "25001")
	}
	require.NotEqual(t, "unknown", one[string](t, b.observer, `SELECT epoch FROM fencing.origin`))
}

func TestRebase_isTheOwners(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role := b.role(t)
	b.exec(t, `SELECT fencing.grant_to('`+role+`')`)
	pool := b.as(t, role)
	const content = `SELECT o::text FROM fencing.origin o`
	before := one[string](t, b.observer, content)
	for _, sql := range []string{`SELECT fencing.rebase()`, `UPDATE fencing.origin SET epoch = 'unknown'`} {
		_, err := pool.Exec(t.Context(), sql)
		requireCode(t, err, "42501")
	}
	require.Equal(t, before, one[string](t, b.observer, content))
}

// A dump carries marks of a server whose tokens are higher than all that this one
// has issued.
func TestRebase_goesAboveMarksThatCameFromElsewhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	const restored fencing.Token = 5<<50 | 7
	b.exec(t, `INSERT INTO fencing.resource (name, mark, epoch) VALUES ('nightly', $1, fencing.epoch())`, int64(restored))

	// Without it the mark still makes tokens grow.
	lease := b.lock(t, b.fencer, "nightly")
	require.Greater(t, lease.Token(), restored)
	require.NoError(t, lease.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)))
	require.NoError(t, lease.Unlock(t.Context()))

	b.exec(t, `SELECT fencing.rebase()`)
	require.ErrorIs(t, lease.InTx(t.Context(), b.pool, write(t.Context(), "exports", 4)), fencing.ErrStale)
	require.Greater(t, b.lock(t, b.fencer, "nightly").Token(), lease.Token())
}

// What is issued from then on is not what the original issues, also for a resource
// that has no mark yet, and it is what a double can hold.
func TestRebase_leavesTheNumbersOfTheSequence(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first := b.lock(t, b.fencer, "nightly")
	require.Equal(t, fencing.Token(1), first.Token())
	require.NoError(t, first.Unlock(t.Context()))
	b.exec(t, `SELECT fencing.rebase()`)
	now := one[int64](t, b.observer, `SELECT extract(epoch FROM now() - timestamptz '2026-01-01 00:00:00+00') * 1000000`)
	for _, resource := range []string{"nightly", "new"} {
		lease := b.lock(t, b.fencer, resource)
		require.Greater(t, int64(lease.Token()), now)
		require.Less(t, int64(lease.Token()), int64(1)<<53)
		require.NoError(t, lease.Unlock(t.Context()))
		require.Greater(t, b.lock(t, b.fencer, resource).Token(), lease.Token())
	}
}
