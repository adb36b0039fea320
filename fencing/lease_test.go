package fencing_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
)

var errWork = errors.New("work failed")

func TestLease_isItsLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lease := b.lock(t, b.fencer, "nightly")
	require.Equal(t, "nightly", lease.Resource())
	require.Equal(t, []advisory.Key{advisory.Name("nightly")}, lease.AdvisoryLock().Keys())
	require.Equal(t, int64(1), one[int64](t, b.observer, advisoryLocksSQL+`
		AND granted AND pid = $1 AND (classid::bigint << 32 | objid::bigint) = hashtextextended('nightly', 0)`, lease.BackendPID()))
	require.NoError(t, lease.Err())
	require.NoError(t, lease.Unlock(t.Context()))
	require.ErrorIs(t, lease.Err(), advisory.ErrUnlocked)
	require.Zero(t, one[int64](t, b.observer, advisoryLocksSQL))
}

func TestStamp_isEnoughForAWorkerWithTheTokenOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	workers := b.db.Pool(t)
	work := func(id int) error {
		return fencing.Translate(pgx.BeginFunc(t.Context(), workers, func(tx pgx.Tx) error {
			if err := fencing.Stamp(t.Context(), tx, lease.Resource(), lease.Token()); err != nil {
				return err
			}
			if limit := idleLimit(t.Context(), tx); limit != "1min" {
				return errors.New("idle limit " + limit)
			}
			return write(t.Context(), "exports", id)(tx)
		}))
	}
	require.NoError(t, work(3))
	require.NoError(t, lease.Unlock(t.Context()))
	b.lock(t, b.fencer, "nightly")
	require.ErrorIs(t, work(4), fencing.ErrStale)
	require.Equal(t, "(1,one) (2,two) (3,written)", b.contents(t, "exports"))
}

func idleLimit(ctx context.Context, tx pgx.Tx) string {
	var text string
	if err := tx.QueryRow(ctx, idleLimitSQL).Scan(&text); err != nil {
		return err.Error()
	}
	return text
}

func TestLease_stampsManyTransactionsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	var work sync.WaitGroup
	for i := range 8 {
		// Ends with its writes; the test waits for it.
		work.Go(func() {
			for j := range 10 {
				if err := lease.InTx(t.Context(), b.pool, write(t.Context(), "exports", 100+10*i+j)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	require.Equal(t, 82, one[int](t, b.observer, `SELECT count(*) FROM exports`))
}
