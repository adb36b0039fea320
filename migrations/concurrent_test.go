package migrations_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
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

			ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second)
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
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pool := b.db.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = endAt{"pg_try_advisory_lock", cancel} })
	err := migrations.Up(ctx, pool)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "waiting for another run of the migrations")
	requireGivenBack(t, pool)
	b.waitForNoLock(t)
	b.requireNothing(t)
}

// endAt ends a context when a query with the text is about to be sent.
type endAt struct {
	text string
	end  context.CancelFunc
}

func (e endAt) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, e.text) {
		e.end()
	}
	return ctx
}

func (endAt) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
