package fencing_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

const (
	idleLimitSQL = `SELECT current_setting('idle_in_transaction_session_timeout')`
	stampsSQL    = `SELECT coalesce(current_setting('fencing.stamps', true), '')`
)

func TestStamp_boundsHowLongItsTransactionMayIdle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		role    string        // its setting
		maxIdle time.Duration // as configured
		want    string
	}{
		"by default":                         {"0", 0, "1min"},
		"as configured":                      {"0", 1500 * time.Millisecond, "1500ms"},
		"fraction of a millisecond":          {"0", 2*time.Second + 300*time.Microsecond, "2s"},
		"longer than a minute":               {"0", 90 * time.Second, "90s"},
		"above the role's":                   {"10s", 30 * time.Second, "10s"},
		"as the role's":                      {"30s", 30 * time.Second, "30s"},
		"below the role's":                   {"2h", 30 * time.Second, "30s"},
		"below the role's in milliseconds":   {"1501ms", 1500 * time.Millisecond, "1500ms"},
		"longer than the server counts":      {"0", 1000 * time.Hour, "2147483647ms"},
		"longer, and the role has its limit": {"1d", 1000 * time.Hour, "1d"},
	} {
		t.Log(name)
		pool := b.db.Pool(t, with("idle_in_transaction_session_timeout", c.role), func(p *pgxpool.Config) { p.MaxConns = 2 })
		lease := b.lock(t, newFencer(t, pool, nil, &fencing.Config{MaxIdle: c.maxIdle}), name)
		requireIdleLimit(t, pool, lease, c.want)
		require.NoError(t, lease.Unlock(t.Context()))
	}
}

// requireIdleLimit stamps transactions of one session, and says what their limit
// is, and that it ends with them.
func requireIdleLimit(t *testing.T, pool *pgxpool.Pool, lease *fencing.Lease, want string) {
	t.Helper()
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	before := one[string](t, conn, idleLimitSQL)
	for _, end := range []func(pgx.Tx, context.Context) error{pgx.Tx.Commit, pgx.Tx.Rollback} {
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Stamp(t.Context(), tx))
		require.Equal(t, want, one[string](t, tx, idleLimitSQL))
		require.NoError(t, end(tx, t.Context()))
		require.Equal(t, before, one[string](t, conn, idleLimitSQL))
	}
	for range 3 { // the first one on a connection does it in another way
		require.NoError(t, lease.InTx(t.Context(), conn, func(tx pgx.Tx) error {
			require.Equal(t, want, one[string](t, tx, idleLimitSQL))
			stamps := fmt.Sprintf(`{%q: %d}`, lease.Resource(), lease.Token())
			require.JSONEq(t, stamps, one[string](t, tx, stampsSQL))
			return nil
		}))
		require.Equal(t, before, one[string](t, conn, idleLimitSQL))
		require.Empty(t, one[string](t, conn, stampsSQL))
	}
}

// The server really ends what idles, and the next holder need not wait.
func TestStamp_makesWayForTheNextHolder(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	fencer := newFencer(t, b.db.Pool(t, large), nil, &fencing.Config{MaxIdle: 300 * time.Millisecond})
	old := b.lock(t, fencer, "nightly")
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	require.NoError(t, old.Stamp(t.Context(), tx))
	require.NoError(t, write(t.Context(), "exports", 3)(tx))
	b.terminate(t, old)

	current := b.lock(t, b.another(t), "nightly")
	require.Greater(t, current.Token(), old.Token())
	require.Error(t, tx.Commit(t.Context()))
	require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
}

func TestStamp_endsWithItsTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	conn, err := b.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	for _, end := range []func(pgx.Tx, context.Context) error{pgx.Tx.Commit, pgx.Tx.Rollback} {
		tx, err := conn.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Stamp(t.Context(), tx))
		require.JSONEq(t, `{"nightly": 1}`, one[string](t, tx, stampsSQL))
		require.NoError(t, end(tx, t.Context()))
		require.Empty(t, one[string](t, conn, stampsSQL))

		tx, err = conn.Begin(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, fencing.Translate(write(t.Context(), "exports", 3)(tx)), fencing.ErrUnstamped)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

func TestStamp_endsWithItsSavepoint(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		inner, err := tx.Begin(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Stamp(t.Context(), inner))
		require.NoError(t, write(t.Context(), "exports", 3)(inner))
		require.NoError(t, inner.Rollback(t.Context()))
		return write(t.Context(), "exports", 3)(tx)
	})
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
	require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
}

func TestStamp_worksForSeveralResourcesInOneTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.guarded(t, "invoices", `the "invoices"`)
	exports, invoices := b.lock(t, b.fencer, "nightly"), b.lock(t, b.fencer, `the "invoices"`)
	both := func(id int) func(tx pgx.Tx) error {
		return func(tx pgx.Tx) error {
			if err := invoices.Stamp(t.Context(), tx); err != nil {
				return err
			}
			if err := write(t.Context(), "exports", id)(tx); err != nil {
				return err
			}
			return write(t.Context(), "invoices", id)(tx)
		}
	}
	require.NoError(t, exports.InTx(t.Context(), b.pool, both(3)))
	require.Equal(t, "(1,one) (2,two) (3,written)", b.contents(t, "exports"))
	require.Equal(t, "(1,one) (2,two) (3,written)", b.contents(t, "invoices"))

	// One of them superseded, the transaction is refused as a whole.
	require.NoError(t, invoices.Unlock(t.Context()))
	b.lock(t, b.fencer, `the "invoices"`)
	var stale *fencing.StaleError
	require.ErrorAs(t, exports.InTx(t.Context(), b.pool, both(4)), &stale)
	require.Equal(t, `the "invoices"`, stale.Resource)
	require.Equal(t, "public.invoices", stale.Table)
	require.Equal(t, "(1,one) (2,two) (3,written)", b.contents(t, "exports"))
}

func TestStamp_againTakesTheLastToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	old, current := b.superseded(t, "nightly")
	require.NoError(t, old.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		if err := current.Stamp(t.Context(), tx); err != nil {
			return err
		}
		return write(t.Context(), "exports", 3)(tx)
	}))
	require.ErrorIs(t, current.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		if err := old.Stamp(t.Context(), tx); err != nil {
			return err
		}
		return write(t.Context(), "exports", 4)(tx)
	}), fencing.ErrStale)
}

// Whatever way pgx talks to the server, as poolers may want it.
func TestStamp_worksInEveryExecMode(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", `it's "nightly"`)
	for i, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		pool := b.db.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
		lease := b.lock(t, newFencer(t, pool, nil, nil), `it's "nightly"`)
		require.NoError(t, lease.InTx(t.Context(), pool, write(t.Context(), "exports", 10+i)), mode.String())
		require.NoError(t, fencing.Guard(t.Context(), pool, "exports", `it's "nightly"`), mode.String())
		require.NoError(t, lease.Unlock(t.Context()), mode.String())
	}
}
