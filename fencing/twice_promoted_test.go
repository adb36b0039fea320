package fencing_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// promotedStandby is a new standby of the primary that was promoted at once.
func promotedStandby(t *testing.T, primary *pgtest.Database) *bundle {
	t.Helper()
	standby, err := pgtest.LaunchStandby(t.Context(), primary)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Close()) })
	require.NoError(t, standby.CatchUp(t.Context()))
	require.NoError(t, standby.Cut(t.Context()))
	require.NoError(t, standby.Promote(t.Context()))
	b := on(t, standby.Database)
	require.Equal(t, "00000002", one[string](t, b.observer, `SELECT fencing.epoch()`), "the number of the timeline is the same again")
	return b
}

// A standby is promoted, the old primary takes the cluster back, and a standby that was made
// from it is promoted: to a timeline with the number of the first. Who got a token on the
// first one is no holder on the second.
func TestFailover_toATimelineThatWasThereBefore(t *testing.T) {
	t.Parallel()
	if err := pgtest.CheckStandby(t.Context()); err != nil {
		t.Skip(err)
	}
	primary := pgtest.StartWith(t)
	old := on(t, primary)
	resources := map[string]string{"nightly": "exports", "unseen": "imports"} // the primary has issued for one of them
	for resource, table := range resources {
		old.guarded(t, table, resource)
	}
	require.NoError(t, old.lock(t, old.fencer, "nightly").Unlock(t.Context()))

	first := promotedStandby(t, primary)
	var before []*fencing.Lease
	for resource, table := range resources {
		for range 3 {
			lease := first.lock(t, first.fencer, resource)
			require.NoError(t, lease.InTx(t.Context(), first.pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `UPDATE `+table+` SET note = 'first'`)
				return err
			}))
			require.NoError(t, lease.Unlock(t.Context()))
			before = append(before, lease)
		}
	}
	second := promotedStandby(t, primary)
	refuse := func() {
		t.Helper()
		for _, lease := range before {
			table := resources[lease.Resource()]
			require.ErrorIs(t, lease.InTx(t.Context(), second.pool, write(t.Context(), table, 3)), fencing.ErrStale)
		}
	}
	refuse() // with no token drawn
	for resource, table := range resources {
		for range 20 {
			lease := second.lock(t, second.fencer, resource)
			for _, other := range before {
				require.NotEqual(t, other.Token(), lease.Token())
			}
			require.NoError(t, lease.InTx(t.Context(), second.pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `UPDATE `+table+` SET note = 'second'`)
				return err
			}))
			require.NoError(t, lease.Unlock(t.Context()))
			require.Less(t, int64(lease.Token()), int64(1)<<53)
		}
	}
	refuse()
	for _, table := range resources {
		require.Equal(t, "(1,second) (2,second)", second.contents(t, table))
	}
	requireProblems(t, second)
}
