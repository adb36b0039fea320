package fencing_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
)

// doers are Do and TryDo, which differ only in how they take the lock.
var doers = map[string]func(*fencing.Fencer, context.Context, string, func(context.Context, *fencing.Lease) error) error{
	"Do":    (*fencing.Fencer).Do,
	"TryDo": (*fencing.Fencer).TryDo,
}

func TestDo_holdsTheLeaseWhileFnRuns(t *testing.T) {
	t.Parallel()
	for name, do := range doers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.guarded(t, "exports", "nightly")
			require.NoError(t, do(b.fencer, t.Context(), "nightly", func(ctx context.Context, lease *fencing.Lease) error {
				require.Equal(t, int64(1), one[int64](t, b.observer, advisoryLocksSQL))
				require.Equal(t, lease.Token(), b.mark(t, "nightly"))
				require.NoError(t, ctx.Err())
				never := func(context.Context, *fencing.Lease) error { panic("not reached") }
				require.ErrorIs(t, b.fencer.TryDo(ctx, "nightly", never), advisory.ErrNotAcquired)
				return lease.InTx(ctx, b.pool, write(ctx, "exports", 3))
			}))
			require.Zero(t, one[int64](t, b.observer, advisoryLocksSQL))
			require.Equal(t, "(1,one) (2,two) (3,written)", b.contents(t, "exports"))
		})
	}
}

func TestDo_returnsFnsErrorAndUnlocks(t *testing.T) {
	t.Parallel()
	for name, do := range doers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			err := do(b.fencer, t.Context(), "nightly", func(context.Context, *fencing.Lease) error { return errWork })
			require.Equal(t, errWork, err)
			require.Zero(t, one[int64](t, b.observer, advisoryLocksSQL))
		})
	}
}

func TestDo_unlocksWhenFnPanics(t *testing.T) {
	t.Parallel()
	for name, do := range doers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			var lease *fencing.Lease
			require.PanicsWithValue(t, "work panicked", func() {
				_ = do(b.fencer, t.Context(), "nightly", func(_ context.Context, l *fencing.Lease) error {
					lease = l
					panic("work panicked")
				})
			})
			require.ErrorIs(t, lease.Err(), advisory.ErrUnlocked)
			require.Zero(t, one[int64](t, b.observer, advisoryLocksSQL))
		})
	}
}

func TestDo_endsFnsContextWhenTheLockIsLost(t *testing.T) {
	t.Parallel()
	for name, do := range doers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.guarded(t, "exports", "nightly")
			other := b.another(t)
			err := do(b.fencer, t.Context(), "nightly", func(ctx context.Context, old *fencing.Lease) error {
				b.terminate(t, old)
				current := b.lock(t, other, "nightly")
				receive(t, ctx.Done())
				require.ErrorIs(t, context.Cause(ctx), advisory.ErrLost)
				require.ErrorIs(t, old.Err(), advisory.ErrLost)
				// With a context that has not ended the write is still refused.
				require.ErrorIs(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)), fencing.ErrStale)
				require.NoError(t, current.InTx(t.Context(), b.pool, write(t.Context(), "exports", 4)))
				return nil
			})
			require.ErrorIs(t, err, advisory.ErrLost)
			require.Equal(t, "(1,one) (2,two) (4,written)", b.contents(t, "exports"))
		})
	}
}

func TestDo_joinsFnsErrorWithTheLoss(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := b.fencer.Do(t.Context(), "nightly", func(ctx context.Context, lease *fencing.Lease) error {
		b.terminate(t, lease)
		receive(t, ctx.Done())
		return errWork
	})
	require.ErrorIs(t, err, errWork)
	require.ErrorIs(t, err, advisory.ErrLost)
}
