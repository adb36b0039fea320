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

func TestInTx_commits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	conn := b.db.Conn(t)
	require.NoError(t, lease.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)))
	require.NoError(t, lease.InTx(t.Context(), conn, write(t.Context(), "exports", 4)))
	require.Equal(t, "(1,one) (2,two) (3,written) (4,written)", b.contents(t, "exports"))
	require.Equal(t, byte('I'), conn.PgConn().TxStatus())
}

// stampedOn returns a connection that InTx has not seen before, one that it has called
// the function on, and one that has its statement.
func stampedOn(t *testing.T, b *bundle, lease *fencing.Lease) []*pgx.Conn {
	t.Helper()
	conns := make([]*pgx.Conn, 3)
	for n := range conns {
		conns[n] = b.db.Conn(t)
		for range n {
			require.NoError(t, lease.InTx(t.Context(), conns[n], func(pgx.Tx) error { return nil }))
		}
	}
	return conns
}

func TestInTx_rollsBackWhenFnFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	for _, conn := range stampedOn(t, b, lease) {
		err := lease.InTx(t.Context(), conn, func(tx pgx.Tx) error {
			if err := write(t.Context(), "exports", 3)(tx); err != nil {
				return err
			}
			return errWork
		})
		require.Equal(t, errWork, err)
		require.Equal(t, byte('I'), conn.PgConn().TxStatus())
		require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
	}
}

func TestInTx_rollsBackWhenFnPanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	for _, conn := range stampedOn(t, b, lease) {
		require.PanicsWithValue(t, "work panicked", func() {
			_ = lease.InTx(t.Context(), conn, func(tx pgx.Tx) error {
				if err := write(t.Context(), "exports", 3)(tx); err != nil {
					return err
				}
				panic("work panicked")
			})
		})
		require.Equal(t, byte('I'), conn.PgConn().TxStatus())
		require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
	}
}

func TestInTx_returnsAPoolsConnectionWhenFnPanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lease := b.lock(t, b.fencer, "nightly")
	pool := b.db.Pool(t, single)
	for range 4 {
		require.Panics(t, func() { _ = lease.InTx(t.Context(), pool, func(pgx.Tx) error { panic("work panicked") }) })
		require.Zero(t, pool.Stat().AcquiredConns())
	}
	require.EqualValues(t, 1, pool.Stat().NewConnsCount())
}

func TestInTx_doesNotCallFnWhenItCantStampOrBegin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lease := b.lock(t, b.fencer, "nightly")
	never := func(pgx.Tx) error { panic("not reached") }
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, lease.InTx(ctx, b.pool, never), context.Canceled)

	b.exec(t, `ALTER FUNCTION fencing.stamp RENAME TO lost`)
	conn := b.db.Conn(t)
	require.ErrorIs(t, lease.InTx(t.Context(), conn, never), fencing.ErrNotInstalled)
	require.Equal(t, byte('I'), conn.PgConn().TxStatus())
}

func TestInTx_stampsWhateverTheNameIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, resource := range []string{`it's`, `\`, `a"b`, "$1", "жьф 漢字 🐘", "';--", "\n\t", "plain"} {
		table := fmt.Sprintf("t%d", i)
		b.guarded(t, table, resource)
		lease := b.lock(t, b.fencer, resource)
		for _, setting := range []string{"on", "off"} {
			pool := b.db.Pool(t, single, with("standard_conforming_strings", setting), with("search_path", "nowhere"))
			for id := range 3 {
				require.NoError(t, lease.InTx(t.Context(), pool, write(t.Context(), "public."+table, 3+id)), resource)
			}
			require.NoError(t, lease.InTx(t.Context(), pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "DELETE FROM public."+table+" WHERE id > 2")
				return err
			}))
		}
		require.NoError(t, lease.Unlock(t.Context()))
	}
}

func TestInTx_returnsWhatTheCommitSays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.exec(t, `ALTER TABLE exports ADD after int REFERENCES exports DEFERRABLE INITIALLY DEFERRED`)
	lease := b.lock(t, b.fencer, "nightly")
	err := lease.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO exports VALUES (3, 'three', 99)`)
		return err
	})
	requireCode(t, err, "23503")
	require.Equal(t, "(1,one,) (2,two,)", b.contents(t, "exports"))
}

func TestInTx_withAnyMaxIdle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	for i, d := range []time.Duration{time.Minute, time.Hour, 1 << 62} {
		lease := b.lock(t, newFencer(t, b.pool, nil, &fencing.Config{MaxIdle: d}), "nightly")
		require.NoError(t, lease.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3+i)), d)
		require.NoError(t, lease.Unlock(t.Context()))
	}
	lease := &fencing.Lease{} // made by hand
	require.ErrorContains(t, lease.InTx(t.Context(), b.pool, func(pgx.Tx) error { panic("called") }), "not valid")
}

// serializable is a Beginner that sets the isolation level.
type serializable struct{ *pgxpool.Pool }

func (s serializable) BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error) {
	options.IsoLevel = pgx.Serializable
	return s.Pool.BeginTx(ctx, options)
}

func TestInTx_leavesTheIsolationLevelToABeginner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	require.NoError(t, lease.InTx(t.Context(), serializable{b.pool}, func(tx pgx.Tx) error {
		require.Equal(t, "serializable", one[string](t, tx, "SELECT current_setting('transaction_isolation')"))
		return write(t.Context(), "exports", 3)(tx)
	}))
}

// A stamp that fails leaves no connection in a failed transaction.
func TestInTx_aConnectionIsGoodAfterAStampThatFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lease := b.lock(t, b.fencer, "nightly")
	b.exec(t, "ALTER SCHEMA fencing RENAME TO away")
	defer b.exec(t, "ALTER SCHEMA away RENAME TO fencing")
	conn := b.db.Conn(t)
	pool := b.db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	pinned, err := pool.Acquire(t.Context())
	require.NoError(t, err)
	for _, db := range []fencing.Beginner{conn, pinned} {
		err := lease.InTx(t.Context(), db, func(pgx.Tx) error { panic("called") })
		require.ErrorIs(t, err, fencing.ErrNotInstalled)
		require.ErrorContains(t, err, "nightly")
	}
	require.True(t, one[bool](t, conn, "SELECT true"))
	require.True(t, one[bool](t, pinned, "SELECT true"))
	pinned.Release()
	require.ErrorIs(t, lease.InTx(t.Context(), pool, func(pgx.Tx) error { panic("called") }), fencing.ErrNotInstalled)
	require.True(t, one[bool](t, pool, "SELECT true"))
}
