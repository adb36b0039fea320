package fencing_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/migrations"
)

const copyProblem = "this database is a copy: the original may have issued tokens that are not known here"

// newDatabase creates a database next to db, which goes with the test.
func newDatabase(t *testing.T, db *pgtest.Database, options string) *pgtest.Database {
	t.Helper()
	other := db.Named(t, "pgtest_copy_"+strings.ToLower(rand.Text()))
	conn := db.Named(t, "postgres").Conn(t)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), `DROP DATABASE IF EXISTS `+other.Name+` WITH (FORCE)`)
		if !conn.IsClosed() { // else the server crashed, and goes with the test
			require.NoError(t, err)
		}
	})
	_, err := conn.Exec(t.Context(), `CREATE DATABASE `+other.Name+` `+options)
	require.NoError(t, err)
	return other
}

// cloned gives the database a guarded table and two holdings of nightly, and
// makes a copy of it. The holdings are over.
func cloned(t *testing.T, db *pgtest.Database) (original, clone *bundle, old []*fencing.Lease) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), db.DSN)
	require.NoError(t, err)
	require.NoError(t, migrations.Up(t.Context(), pool))
	first := &bundle{db: db, pool: pool, observer: db.Conn(t)}
	first.fencer = newFencer(t, pool, nil, nil)
	first.guarded(t, "exports", "nightly")
	for range 2 {
		lease := first.lock(t, first.fencer, "nightly")
		require.NoError(t, lease.Unlock(t.Context()))
		old = append(old, lease)
	}
	// Nobody may be connected to what is copied.
	pool.Close()
	require.NoError(t, first.observer.Close(t.Context()))
	other := newDatabase(t, db, `TEMPLATE `+db.Name)
	return on(t, db), on(t, other), old
}

func requireProblems(t *testing.T, b *bundle, want ...string) {
	t.Helper()
	report, err := fencing.Verify(t.Context(), b.pool)
	require.NoError(t, err)
	var got []string
	for _, table := range report.Tables {
		for _, problem := range table.Problems {
			got = append(got, problem.What)
		}
	}
	for _, problem := range report.Problems {
		got = append(got, problem.What)
	}
	require.Equal(t, want, got)
}

func TestCopy_issuesWhatTheOriginalIssuesUntilItIsRebased(t *testing.T) {
	t.Parallel()
	original, clone, old := cloned(t, pgtest.New(t))
	requireProblems(t, original)
	requireProblems(t, clone, copyProblem)

	// This is what Verify warns of.
	here, there := original.lock(t, original.fencer, "nightly"), clone.lock(t, clone.fencer, "nightly")
	require.Equal(t, here.Token(), there.Token())
	require.NoError(t, here.InTx(t.Context(), clone.pool, write(t.Context(), "exports", 3)))
	require.NoError(t, there.Unlock(t.Context()))

	clone.exec(t, `SELECT fencing.rebase()`)
	requireProblems(t, clone)
	require.NoError(t, here.Unlock(t.Context()))
	var later []*fencing.Lease
	for range 10 {
		lease := original.lock(t, original.fencer, "nightly")
		require.NoError(t, lease.Unlock(t.Context()))
		later = append(later, lease)
	}
	other := original.lock(t, original.fencer, "hourly") // of which the copy knows nothing
	clone.exec(t, `CREATE TABLE reports (id int, note text)`)
	require.NoError(t, fencing.Guard(t.Context(), clone.pool, "reports", "hourly"))
	refuse := func() {
		t.Helper()
		for _, lease := range append(append(later, old...), here, there) {
			require.ErrorIs(t, lease.InTx(t.Context(), clone.pool, write(t.Context(), "exports", 4)), fencing.ErrStale)
		}
		require.ErrorIs(t, other.InTx(t.Context(), clone.pool, write(t.Context(), "reports", 4)), fencing.ErrStale)
	}
	refuse() // at once
	for resource, table := range map[string]string{"nightly": "exports", "hourly": "reports"} {
		lease := clone.lock(t, clone.fencer, resource)
		require.Greater(t, lease.Token(), other.Token(), "which is the highest of the original")
		require.NoError(t, lease.InTx(t.Context(), clone.pool, write(t.Context(), table, 5)))
	}
	refuse()
	requireProblems(t, original)
	require.Greater(t, original.lock(t, original.fencer, "nightly").Token(), later[9].Token())
}

// Values that a session has cached come late.
func TestToken_growsWhileTheSequenceCaches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.exec(t, `ALTER SEQUENCE fencing.token CACHE 20`)
	fencers := []*fencing.Fencer{b.another(t, single), b.another(t, single)}
	var last *fencing.Lease
	for i := range 60 {
		lease := b.lock(t, fencers[i%2], "nightly")
		if last != nil {
			require.Greater(t, lease.Token(), last.Token())
			require.ErrorIs(t, last.InTx(t.Context(), b.pool, write(t.Context(), "exports", 1000)), fencing.ErrStale)
		}
		require.NoError(t, lease.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3+i)))
		require.NoError(t, lease.Unlock(t.Context()))
		last = lease
	}
}

func single(c *pgxpool.Config) { c.MinConns, c.MaxConns = 1, 1 }

// The sequence of a clone may go back in a crash: it counts on values that were
// written to the log of the original.
func TestCopy_growsThroughACrash(t *testing.T) {
	t.Parallel()
	server := pgtest.StartWith(t)
	db := newDatabase(t, server, `TEMPLATE template0`)
	ctx, cancel := context.WithTimeout(t.Context(), 2*limit)
	defer cancel()
	_, clone, old := cloned(t, db)
	last := old[1].Token()
	for range 3 {
		for range 5 {
			lease := lockUntilItCan(ctx, t, clone.fencer, "nightly")
			require.Greater(t, lease.Token(), last)
			last = lease.Token()
			require.NoError(t, lease.Unlock(ctx))
		}
		killBackend(ctx, t, server.DSN)
	}
	require.Greater(t, lockUntilItCan(ctx, t, clone.fencer, "nightly").Token(), last)
}

// lockUntilItCan is Lock on a server that may be recovering.
func lockUntilItCan(ctx context.Context, t *testing.T, fencer *fencing.Fencer, resource string) *fencing.Lease {
	t.Helper()
	for {
		lease, err := fencer.Lock(ctx, resource)
		if err == nil {
			return lease
		}
		waitAMoment(ctx)
		require.NoError(t, ctx.Err(), "waiting for the server: %v", err)
	}
}
