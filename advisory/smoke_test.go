package advisory_test

import (
	"context"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestSmoke(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 2 })
	l, err := advisory.New(pool, nil)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				k, err := l.Lock(context.Background(), advisory.Name("x"))
				if err != nil {
					t.Error(err)
					return
				}
				if err := k.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, pool.Stat().AcquiredConns())
	require.NoError(t, l.Close(context.Background()))
}
