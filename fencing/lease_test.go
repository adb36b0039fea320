package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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
	require.Equal(t, []advisory.Key{advisory.Name("nightly")}, lease.Keys())
	require.Equal(t, int64(1), one[int64](t, b.observer, advisoryLocksSQL+`
		AND granted AND pid = $1 AND (classid::bigint << 32 | objid::bigint) = hashtextextended('nightly', 0)`, lease.BackendPID()))
	require.NoError(t, lease.Err())
	require.NoError(t, lease.Unlock(t.Context()))
	require.ErrorIs(t, lease.Err(), advisory.ErrUnlocked)
	require.Zero(t, one[int64](t, b.observer, advisoryLocksSQL))
}

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

func TestInTx_rollsBackWhenFnFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	conn := b.db.Conn(t)
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

func TestInTx_rollsBackWhenFnPanics(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	conn := b.db.Conn(t)
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

func TestInTx_stampsWhateverTheNameIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, resource := range []string{`it's`, `\`, `a"b`, "$1", "жьф 漢字 🐘", "';--", "\n\t"} {
		table := fmt.Sprintf("t%d", i)
		b.guarded(t, table, resource)
		lease := b.lock(t, b.fencer, resource)
		for _, setting := range []string{"on", "off"} {
			pool := b.db.Pool(t, with("standard_conforming_strings", setting), with("search_path", "nowhere"))
			require.NoError(t, lease.InTx(t.Context(), pool, write(t.Context(), "public."+table, 3)), resource)
			require.NoError(t, lease.InTx(t.Context(), pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "DELETE FROM public."+table+" WHERE id = 3")
				return err
			}))
		}
		require.NoError(t, lease.Unlock(t.Context()))
	}
}

type roundTrips struct{ n atomic.Int64 }

func (r *roundTrips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	r.n.Add(1)
	return ctx
}

func (r *roundTrips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func TestInTx_beginsAndStampsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	r := new(roundTrips)
	pool := b.db.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = r })
	for i := range 3 {
		require.NoError(t, lease.InTx(t.Context(), pool, func(pgx.Tx) error { return nil }))
		require.EqualValues(t, 2*(i+1), r.n.Load(), "the begin with the stamp, and the commit")
	}
}

// Leases that differ in all they can, on one connection that other code uses too.
func TestInTx_stampsForTheLeaseOnAConnectionThatItKnows(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.guarded(t, "invoices", "it's")
	conn := b.db.Conn(t)
	short := newFencer(t, b.pool, nil, &fencing.Config{MaxIdle: 5 * time.Second})
	nightly, other := b.lock(t, b.fencer, "nightly"), b.lock(t, short, "it's")
	for i := range 3 {
		id := 10 + 2*i
		require.NoError(t, nightly.InTx(t.Context(), conn, func(tx pgx.Tx) error {
			require.Equal(t, "1min", one[string](t, tx, idleLimitSQL))
			require.NoError(t, other.Stamp(t.Context(), tx))
			require.Equal(t, "5s", one[string](t, tx, idleLimitSQL))
			require.NoError(t, write(t.Context(), "invoices", id)(tx))
			return write(t.Context(), "exports", id)(tx)
		}))
		require.NoError(t, other.InTx(t.Context(), conn, func(tx pgx.Tx) error {
			require.Equal(t, "5s", one[string](t, tx, idleLimitSQL))
			return write(t.Context(), "invoices", id+1)(tx)
		}))
		err := other.InTx(t.Context(), conn, write(t.Context(), "exports", id+1))
		require.ErrorIs(t, err, fencing.ErrUnstamped)
		_, err = conn.Exec(t.Context(), "RESET ALL")
		require.NoError(t, err)
		require.NoError(t, nightly.Unlock(t.Context()))
		next := b.lock(t, b.fencer, "nightly")
		require.ErrorIs(t, nightly.InTx(t.Context(), conn, write(t.Context(), "exports", id+1)), fencing.ErrStale)
		nightly = next
	}
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
	lease := &fencing.Lease{Lock: b.lock(t, b.fencer, "nightly").Lock} // made by hand
	require.ErrorContains(t, lease.InTx(t.Context(), b.pool, func(pgx.Tx) error { panic("called") }), "not valid")
}

// preparedOn counts the statements that InTx has prepared on a connection.
func preparedOn(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'pgadvisory%'",
		pgx.QueryExecModeSimpleProtocol).Scan(&n))
	return n
}

func TestInTx_doesWithoutItsStatement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	conn := b.db.Conn(t)
	id := 3
	inTx := func() {
		t.Helper()
		require.NoError(t, lease.InTx(t.Context(), conn, write(t.Context(), "exports", id)))
		id++
	}
	inTx()
	require.Zero(t, preparedOn(t, conn), "for one transaction")
	inTx()
	inTx()
	require.Equal(t, 1, preparedOn(t, conn))
	_, err := conn.PgConn().Exec(t.Context(), "DEALLOCATE ALL").ReadAll()
	require.NoError(t, err)
	inTx()
	inTx()
	require.Zero(t, preparedOn(t, conn), "where statements vanish")
	require.NoError(t, lease.Unlock(t.Context()))
	b.lock(t, b.fencer, "nightly")
	require.ErrorIs(t, lease.InTx(t.Context(), conn, write(t.Context(), "exports", id)), fencing.ErrStale)
	require.Equal(t, id-1, one[int](t, b.observer, "SELECT max(id) FROM exports"))
}

// As behind a pooler that lends a connection for a transaction.
func TestInTx_preparesNothingWherePgxDoesNot(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	for i, mode := range []pgx.QueryExecMode{pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeCacheDescribe} {
		pool := b.db.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode, c.MaxConns = mode, 1 })
		for j := range 4 {
			require.NoError(t, lease.InTx(t.Context(), pool, write(t.Context(), "exports", 10*(i+1)+j)))
		}
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		require.Zero(t, preparedOn(t, conn.Conn()))
		conn.Release()
	}
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
