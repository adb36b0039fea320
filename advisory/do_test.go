package advisory_test

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func TestDo_holdsWhileFnRuns(t *testing.T) {
	t.Parallel()
	b := setup(t)
	called := false
	err := b.locker.Do(t.Context(), advisory.ID(7), func(ctx context.Context, lock *advisory.Lock) error {
		called = true
		require.NoError(t, ctx.Err())
		require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
		require.ErrorIs(t, b.locker.TryDo(ctx, advisory.ID(7), nil), advisory.ErrNotAcquired, "fn is not called")
		return nil
	})
	require.NoError(t, err)
	require.True(t, called)
	b.leakCheck(t)
}

func TestDo_unlocksWhateverFnDoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	mine := errors.New("mine")
	do := func(ctx context.Context, fn func(context.Context, *advisory.Lock) error) error {
		err := b.locker.TryDo(ctx, advisory.ID(7), fn)
		require.Zero(t, b.granted(t))
		return err
	}

	require.Equal(t, mine, do(t.Context(), func(context.Context, *advisory.Lock) error { return mine }))
	require.NoError(t, do(t.Context(), func(ctx context.Context, k *advisory.Lock) error { return k.Unlock(ctx) }))
	ctx, cancel := context.WithCancel(t.Context())
	require.NoError(t, do(ctx, func(context.Context, *advisory.Lock) error { cancel(); return nil }), "case 8")

	require.PanicsWithValue(t, "case 8", func() {
		_ = do(t.Context(), func(context.Context, *advisory.Lock) error { panic("case 8") })
	})
	require.Zero(t, b.granted(t))

	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = b.locker.Do(context.Background(), advisory.ID(7), func(context.Context, *advisory.Lock) error {
			runtime.Goexit()
			return nil
		})
	}()
	<-exited
	b.leakCheck(t)
}

func TestDo_tellsOfTheLossEvenIfFnSucceeds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := b.locker.Do(t.Context(), advisory.ID(7), func(ctx context.Context, lock *advisory.Lock) error {
		b.terminate(t, lock.BackendPID())
		<-ctx.Done() // case 28
		require.ErrorIs(t, context.Cause(ctx), advisory.ErrLost)
		return nil
	})
	require.ErrorIs(t, err, advisory.ErrLost)

	mine := errors.New("mine")
	err = b.locker.Do(t.Context(), advisory.ID(7), func(ctx context.Context, lock *advisory.Lock) error {
		b.terminate(t, lock.BackendPID())
		<-ctx.Done()
		return mine
	})
	require.ErrorIs(t, err, mine, "case 20: neither hides the other")
	require.ErrorIs(t, err, advisory.ErrLost)
	b.leakCheck(t)
}
