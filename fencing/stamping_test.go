package fencing_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestInTx_beginsAndStampsAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lease := b.lock(t, b.fencer, "nightly")
	w := new(pgtest.Wire)
	pool := b.db.Pool(t, single, w.On)
	require.NoError(t, pool.Ping(t.Context()))
	for i, want := range []int64{2, 2, 1, 1, 1} { // the begin with the stamp, and the commit; then the statement once, and all at once
		before := w.Sent()
		require.NoError(t, lease.InTx(t.Context(), pool, func(pgx.Tx) error { return nil }))
		require.Equal(t, want, w.Sent()-before, "transaction %d", i)
	}
}

// Also while the statement is prepared.
func TestInTx_saysThatItsContextHasEnded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lease := b.lock(t, b.fencer, "nightly")
	for n := range 3 {
		w := new(pgtest.Wire)
		pool := b.db.Pool(t, single, w.On)
		for range n {
			require.NoError(t, lease.InTx(t.Context(), pool, func(pgx.Tx) error { return nil }))
		}
		require.NoError(t, pool.Ping(t.Context()))
		w.Delay(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		err := lease.InTx(ctx, pool, func(tx pgx.Tx) error {
			require.Equal(t, 2, n, "not before it has begun, where it is not known that it can")
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "nightly")
		w.Delay(0)
		require.NoError(t, lease.InTx(t.Context(), pool, func(pgx.Tx) error { return nil }))
		require.Zero(t, pool.Stat().AcquiredConns())
	}
}

// What it does is what the function does, as often as it is used.
func TestInTx_addsToWhatTheSessionHas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lease := b.lock(t, b.fencer, "nightly")
	conn := b.db.Conn(t)
	for i := range 4 {
		_, err := conn.Exec(t.Context(), fmt.Sprintf(`SET idle_in_transaction_session_timeout = '%ds'; SET fencing.stamps = '{"other": %d}'`, 7-i, i))
		require.NoError(t, err)
		require.NoError(t, lease.InTx(t.Context(), conn, func(tx pgx.Tx) error {
			require.Equal(t, fmt.Sprintf("%ds", 7-i), one[string](t, tx, idleLimitSQL))
			require.JSONEq(t, fmt.Sprintf(`{"other": %d, "nightly": %d}`, i, lease.Token()), one[string](t, tx, stampsSQL))
			return nil
		}))
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

// Behind a pooler several versions of this package may share a statement by its name.
func TestInTx_givesAnotherStatementAnotherName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lease := b.lock(t, b.fencer, "nightly")
	conn := b.db.Conn(t)
	for range 2 {
		require.NoError(t, lease.InTx(t.Context(), conn, func(pgx.Tx) error { return nil }))
	}
	require.Equal(t, "pgadvisory_stamp_2 c411e3", one[string](t, conn,
		`SELECT name || ' ' || left(md5(statement), 6) FROM pg_prepared_statements WHERE name LIKE 'pgadvisory%'`))
}

// What a role puts before pg_catalog is not called.
func TestInTx_usesTheServersOwnOperators(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	b.exec(t, `CREATE SCHEMA evil`)
	b.exec(t, `CREATE FUNCTION evil.refuse(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'called'; END $$`)
	for _, operator := range []string{"=", "<>", ">", "||"} {
		b.exec(t, `CREATE OPERATOR evil.`+operator+` (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.refuse)`)
	}
	pool := b.db.Pool(t, single, with("search_path", "evil, pg_catalog"), with("idle_in_transaction_session_timeout", "10s"),
		with("fencing.stamps", `{"other": 1}`))
	for id := range 4 {
		require.NoError(t, lease.InTx(t.Context(), pool, write(t.Context(), "public.exports", 3+id)))
	}
}

// A pooler that lends a connection for a transaction may lend one that has no
// statement, or the one of another client.
func TestInTx_throughAPoolerOfTransactions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	pooled := *b.db
	pooled.DSN = b.db.PgBouncer(t, "transaction", "default_pool_size = 2")
	for i, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeExec} {
		pool := pooled.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode, c.MaxConns = mode, 5 })
		var clients sync.WaitGroup
		for j := range 5 {
			// Ends with its writes; the test waits for it.
			clients.Go(func() {
				for k := range 20 {
					if err := lease.InTx(t.Context(), pool, write(t.Context(), "exports", 1000*(i+1)+100*j+k)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		clients.Wait()
		require.Equal(t, 100, one[int](t, b.observer, `SELECT count(*) FROM exports WHERE id / 1000 = $1`, i+1))
	}
	require.NoError(t, lease.Unlock(t.Context()))
	b.lock(t, b.fencer, "nightly")
	require.ErrorIs(t, lease.InTx(t.Context(), pooled.Pool(t), write(t.Context(), "exports", 3)), fencing.ErrStale)
}
