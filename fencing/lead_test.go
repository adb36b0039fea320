package fencing_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

func TestLead_givesEachTermAHigherToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	var terms []*fencing.Lease
	done := errors.New("enough")
	err := b.fencer.Lead(t.Context(), "nightly", func(ctx context.Context, lease *fencing.Lease) error {
		require.Equal(t, "nightly", lease.Resource())
		terms = append(terms, lease)
		require.NoError(t, lease.InTx(ctx, b.pool, write(ctx, "exports", 10+len(terms))))
		if len(terms) == 2 {
			return done
		}
		b.terminate(t, lease)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), advisory.ErrLost)
		return nil
	})
	require.ErrorIs(t, err, done)
	require.Len(t, terms, 2)
	require.Greater(t, terms[1].Token(), terms[0].Token())
	require.ErrorIs(t, terms[0].InTx(t.Context(), b.pool, write(t.Context(), "exports", 20)), fencing.ErrStale)
	b.waitForNoLock(t)
}

func TestLead_returnsAtOnceWhereNothingIsInstalled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, migrations.Down(t.Context(), b.pool))
	err := b.fencer.Lead(t.Context(), "nightly", func(context.Context, *fencing.Lease) error { panic("not reached") })
	require.ErrorIs(t, err, fencing.ErrNotInstalled)
}
