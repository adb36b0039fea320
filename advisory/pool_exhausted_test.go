package advisory_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Case 58: holders that need the pool for their work, more of them than it has
// connections. None hangs: each is told at once that there is no connection for
// it, or is done.
func TestDo_workOnThePoolOfTheLocks(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(4))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var refused atomic.Int64
	var holders sync.WaitGroup
	for i := range 8 {
		holders.Go(func() {
			for done := 0; done < 10; {
				err := b.locker.Do(ctx, advisory.ID(int64(i)), func(ctx context.Context, _ *advisory.Lock) error {
					_, err := b.pool.Exec(ctx, "SELECT pg_sleep(0.001)")
					return err
				})
				switch {
				case err == nil:
					done++
				case errors.Is(err, advisory.ErrPoolExhausted) && strings.Contains(err.Error(), "pinned 3 of the pool's 4"):
					refused.Add(1)
					<-time.After(5 * time.Millisecond) // before it tries again
				default:
					t.Errorf("neither done nor told the numbers: %v", err)
					return
				}
			}
		})
	}
	holders.Wait()
	require.Positive(t, refused.Load())
	b.leakCheck(t)
}

// Case 58 at its worst: all four hold, if they can, before any works.
func TestDo_fourHoldersOfAPoolOfFour(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(4))
	results := make(chan error, 4)
	var held sync.WaitGroup
	held.Add(4)
	start := time.Now()
	for i := range 4 {
		go func() {
			lock, err := b.locker.Lock(t.Context(), advisory.ID(int64(i)))
			held.Done()
			held.Wait()
			if err == nil {
				_, workErr := b.pool.Exec(t.Context(), "SELECT 1")
				err = errors.Join(workErr, lock.Unlock(t.Context()))
			}
			results <- err
		}()
	}
	refused := 0
	for range 4 {
		if err := <-results; err != nil {
			require.ErrorIs(t, err, advisory.ErrPoolExhausted)
			require.ErrorContains(t, err, "pinned 3 of the pool's 4 connections and Config.Reserve leaves 1 to others")
			refused++
		}
	}
	require.Equal(t, 1, refused)
	require.Less(t, time.Since(start), patience)
	b.leakCheck(t)
}

// Case 60: with a pool for the locks and one for the work, as many can hold as
// the first has connections, and all work.
func TestDo_workOnAPoolOfItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	pool, locker := b.another(t, &advisory.Config{Reserve: advisory.NoReserve}, maxConns(4))
	var hold sync.WaitGroup
	hold.Add(4)
	results := make(chan error, 4)
	for i := range 4 {
		go func() {
			results <- locker.Do(t.Context(), advisory.ID(int64(i)), func(ctx context.Context, _ *advisory.Lock) error {
				hold.Done()
				hold.Wait()
				_, err := b.pool.Exec(ctx, "SELECT 1")
				return err
			})
		}()
	}
	for range 4 {
		require.NoError(t, <-results)
	}
	require.EqualValues(t, 4, pool.Stat().NewConnsCount())
	b.leakCheck(t)
}
