package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// on is a bundle for a database that is not the test's usual one.
func on(t *testing.T, db *pgtest.Database) *bundle {
	t.Helper()
	b := &bundle{db: db, pool: db.Pool(t, large), observer: db.Conn(t)}
	b.fencer = newFencer(t, b.pool, nil, nil)
	return b
}

// lost is how many tokens of a resource only the old primary has issued.
const lost = 100

func TestFailover_refusesWhoeverHeldBefore(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	old := on(t, pair.Primary)
	for i := range 3 {
		old.guarded(t, fmt.Sprintf("exports%d", i), fmt.Sprintf("nightly%d", i))
	}
	old.guarded(t, "imports", "unseen")
	// The standby knows of both holders of nightly0, of the first of nightly1,
	// and of none of unseen.
	superseded, known := old.superseded(t, "nightly0")
	seen := old.lock(t, old.fencer, "nightly1")
	require.NoError(t, seen.Unlock(t.Context()))
	pair.CatchUp(t)
	pair.CutReplication(t)
	var tail []*fencing.Lease
	for range lost {
		lease := old.lock(t, old.fencer, "nightly1")
		require.NoError(t, lease.Unlock(t.Context()))
		tail = append(tail, lease)
	}
	unseen := old.lock(t, old.fencer, "unseen")
	require.NoError(t, unseen.Unlock(t.Context()))

	standing := pair.Standby.Conn(t) // from before the promotion
	pair.Promote(t)
	promoted := on(t, pair.Standby)
	refuse := func(lease *fencing.Lease, table string) {
		t.Helper()
		before := promoted.contents(t, table)
		err := lease.InTx(t.Context(), promoted.pool, write(t.Context(), table, 3))
		var stale *fencing.StaleError
		require.ErrorAs(t, err, &stale)
		require.Equal(t, lease.Token(), stale.Token)
		require.Equal(t, lease.Resource(), stale.Resource)
		if stale.Current <= stale.Token {
			require.ErrorContains(t, err, "promoted")
		}
		require.Equal(t, before, promoted.contents(t, table))
	}
	refuseAll := func() {
		t.Helper()
		refuse(superseded, "exports0")
		refuse(known, "exports0")
		refuse(seen, "exports1")
		for _, lease := range tail {
			refuse(lease, "exports1")
		}
		refuse(unseen, "imports")
	}
	// Nobody has taken a lock there yet.
	refuseAll()

	first := one[int64](t, standing, issueWithLockSQL, "nightly1")
	require.Greater(t, fencing.Token(first), unseen.Token())
	require.True(t, one[bool](t, standing, `SELECT pg_advisory_unlock(hashtextextended('nightly1', 0))`))
	for resource, table := range map[string]string{"nightly0": "exports0", "nightly1": "exports1", "unseen": "imports", "nightly2": "exports2"} {
		lease := promoted.lock(t, promoted.fencer, resource)
		require.Greater(t, lease.Token(), unseen.Token(), "which is the highest of all before")
		require.Equal(t, lease.Token(), promoted.mark(t, resource))
		require.NoError(t, lease.InTx(t.Context(), promoted.pool, write(t.Context(), table, 4)))
	}
	refuseAll()

	// Where nobody told the old primary, its holders go on among themselves.
	require.NoError(t, tail[lost-1].InTx(t.Context(), old.pool, write(t.Context(), "exports1", 3)))
	require.Less(t, old.lock(t, old.fencer, "nightly1").Token(), fencing.Token(first))
}

func TestFailover_thatLosesNothing(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	old := on(t, pair.Primary)
	old.guarded(t, "exports", "nightly")
	holder := old.lock(t, old.fencer, "nightly")
	require.NoError(t, holder.InTx(t.Context(), old.pool, write(t.Context(), "exports", 3)))
	pair.CatchUp(t)
	require.NoError(t, pair.Primary.Server.Close())
	pair.Promote(t)

	promoted := on(t, pair.Standby)
	require.ErrorIs(t, holder.InTx(t.Context(), promoted.pool, write(t.Context(), "exports", 4)), fencing.ErrStale)
	next := promoted.lock(t, promoted.fencer, "nightly")
	require.Greater(t, next.Token(), holder.Token())
	require.NoError(t, next.InTx(t.Context(), promoted.pool, write(t.Context(), "exports", 4)))
	require.ErrorIs(t, holder.InTx(t.Context(), promoted.pool, write(t.Context(), "exports", 5)), fencing.ErrStale)
	require.Equal(t, "(1,one) (2,two) (3,written) (4,written)", promoted.contents(t, "exports"))

	// A promotion is no copy.
	report, err := fencing.Verify(t.Context(), promoted.pool)
	require.NoError(t, err)
	require.True(t, report.OK(), "%+v", report)
}

// The pool knows both servers and wants the one that can be written to.
func TestFailover_leadGoesOnWithAHigherToken(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	on(t, pair.Primary).guarded(t, "exports", "nightly")
	pair.CatchUp(t)
	either := &pgtest.Database{Name: pair.Primary.Name, DSN: eitherDSN(t, pair), Server: pair.Standby.Server}
	both := either.Pool(t, large)
	fencer := newFencer(t, both, nil, nil)

	var terms []*fencing.Lease
	done := errors.New("enough")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	err := fencer.Lead(ctx, "nightly", func(ctx context.Context, lease *fencing.Lease) error {
		terms = append(terms, lease)
		if len(terms) == 2 {
			return done
		}
		if err := lease.InTx(ctx, both, write(ctx, "exports", 3)); err != nil {
			return err
		}
		pair.CatchUp(t)
		if err := pair.Primary.Server.Close(); err != nil {
			return err
		}
		<-ctx.Done() // the leader notices
		if !errors.Is(context.Cause(ctx), advisory.ErrLost) {
			return context.Cause(ctx)
		}
		pair.Promote(t)
		return nil
	})
	require.ErrorIs(t, err, done)
	require.Len(t, terms, 2)
	require.Greater(t, terms[1].Token(), terms[0].Token())
	require.ErrorIs(t, terms[0].InTx(t.Context(), both, write(t.Context(), "exports", 4)), fencing.ErrStale)
	require.Equal(t, "(1,one) (2,two) (3,written)", on(t, pair.Standby).contents(t, "exports"))
}

// eitherDSN names both servers of the pair.
func eitherDSN(t *testing.T, pair *pgtest.Pair) string {
	t.Helper()
	primary, err := url.Parse(pair.Primary.DSN)
	require.NoError(t, err)
	standby, err := url.Parse(pair.Standby.DSN)
	require.NoError(t, err)
	primary.Host += "," + standby.Host
	query := primary.Query()
	query.Set("target_session_attrs", "read-write")
	primary.RawQuery = query.Encode()
	return primary.String()
}
