package migrations_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/migrations"
)

func TestUp_canBeRunByManyAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var work sync.WaitGroup
	for range 8 {
		pool := b.db.Pool(t)
		// Ends with Up; the test waits for it.
		work.Go(func() {
			if err := migrations.Up(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	b.requireWhole(t)
	b.waitForNoLock(t)
}

func TestUp_canBeRunByManyOnOnePool(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool := b.db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 2 })
	var work sync.WaitGroup
	for range 8 {
		// Ends with Up; the test waits for it.
		work.Go(func() {
			if err := migrations.Up(t.Context(), pool); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	b.requireWhole(t)
	b.waitForNoLock(t)
}

func TestUpAndDown_atOnceEndWholeOrWithNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var work sync.WaitGroup
	for i := range 8 {
		pool := b.db.Pool(t)
		// Ends with its runs; the test waits for it.
		work.Go(func() {
			for range 3 {
				run := migrations.Up
				if i%2 == 1 {
					run = migrations.Down
				}
				if err := run(t.Context(), pool); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	b.waitForNoLock(t)
	if b.version(t) == 0 {
		b.requireNothing(t)
	} else {
		b.requireWhole(t)
	}
}

func TestUp_waitsForTheRunThatIsUnderWay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	goOn := b.stall(t, "CREATE FUNCTION")
	first := inBackground(func() error { return migrations.Up(t.Context(), b.pool) })
	b.waitForStalled(t)
	others := b.db.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["application_name"] = "second" })
	second := inBackground(func() error { return migrations.Up(t.Context(), others) })
	b.waitFor(t, "the second one asks", secondAsksSQL)
	require.Empty(t, first)
	require.Empty(t, second)
	goOn()
	require.NoError(t, receive(t, first))
	require.NoError(t, receive(t, second))
	b.requireWhole(t)
}

const secondAsksSQL = `SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
	WHERE datname = current_database() AND application_name = 'second' AND state = 'idle' AND query LIKE '%pg_try_advisory_lock%')`

func TestUpAndDown_giveUpTheWaitWithTheirContext(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(context.Context, *pgxpool.Pool) error{"Up": migrations.Up, "Down": migrations.Down} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.up(t)
			// As a session that has leaked the lock would.
			b.exec(t, `SELECT pg_advisory_lock(`+lockKey.SQL()+`)`)
			pool := b.db.Pool(t, func(c *pgxpool.Config) {
				c.MaxConns = 1
				c.ConnConfig.RuntimeParams["application_name"] = "second"
			})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := inBackground(func() error { return run(ctx, pool) })
			b.waitFor(t, "it asks", secondAsksSQL)
			cancel()
			require.ErrorIs(t, receive(t, result), context.Canceled)

			ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			err := run(ctx, pool)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "waiting for another run of the migrations")

			requireGivenBack(t, pool)
			b.exec(t, `SELECT pg_advisory_unlock(`+lockKey.SQL()+`)`)
			b.waitForNoLock(t)
			b.requireWhole(t)
			require.NoError(t, run(t.Context(), pool))
		})
	}
}

// A context that ends while the server is being asked says the same as one that
// ends between two questions.
func TestUp_saysWhatItWaitsForWhereverItsContextEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE SCHEMA slow`)
	b.exec(t, `CREATE FUNCTION slow.pg_try_advisory_lock(bigint) RETURNS boolean LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_xact_lock_shared(17, 17); RETURN pg_catalog.pg_try_advisory_lock($1); END $$`)
	b.exec(t, `SELECT pg_advisory_lock(17, 17)`)
	pool := b.db.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["search_path"] = "slow, pg_catalog" })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := inBackground(func() error { return migrations.Up(ctx, pool) })
	b.waitForStalled(t)
	cancel()
	err := receive(t, result)
	require.ErrorIs(t, err, context.Canceled)
	b.exec(t, `SELECT pg_advisory_unlock(17, 17)`)
	b.waitForNoLock(t)
	b.requireNothing(t)
	require.ErrorContains(t, err, "waiting for another run of the migrations")
}
