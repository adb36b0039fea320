package fencing_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// modes are those in which transactions begin with their first statement.
var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeSimpleProtocol,
}

// warm has InTx know the connections of a pool.
func warm(t *testing.T, lease *fencing.Lease, db fencing.Beginner) {
	t.Helper()
	for range 3 {
		require.NoError(t, lease.InTx(t.Context(), db, func(pgx.Tx) error { return nil }))
	}
}

func TestInTx_beginsWithItsFirstStatement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "it's")
	lease := b.lock(t, b.fencer, "it's")
	id := 10
	for name, first := range map[string]func(tx pgx.Tx) error{
		"text":  func(tx pgx.Tx) error { return write(t.Context(), "exports", id)(tx) },
		"texts": func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), "SELECT 1; SELECT 2"); return err },
		"exec":  func(tx pgx.Tx) error { _, err := tx.Exec(t.Context(), insertSQL, id, "x"); return err },
		"query": func(tx pgx.Tx) error {
			rows, err := tx.Query(t.Context(), `INSERT INTO exports VALUES ($1, 'x') RETURNING id`, id)
			require.NoError(t, err)
			ids, err := pgx.CollectRows(rows, pgx.RowTo[int])
			require.Equal(t, []int{id}, ids)
			return err
		},
		"row": func(tx pgx.Tx) error {
			return tx.QueryRow(t.Context(), `INSERT INTO exports VALUES ($1, 'x') RETURNING id`, id).Scan(&id)
		},
		"batch": func(tx pgx.Tx) error {
			batch := &pgx.Batch{}
			batch.Queue(insertSQL, id, "x")
			batch.Queue(`DELETE FROM exports WHERE id = $1`, id)
			return tx.SendBatch(t.Context(), batch).Close()
		},
	} {
		for i, mode := range modes {
			if i > 2 && !strings.HasPrefix(name, "text") {
				continue // these begin in a round trip of their own
			}
			w := new(pgtest.Wire)
			pool := b.db.Pool(t, single, w.On, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			warm(t, lease, pool)
			for j := range 4 {
				id++
				before := w.Sent()
				require.NoError(t, lease.InTx(t.Context(), pool, first), "%s, %s", name, mode)
				if want := int64(2); j > 0 && mode != pgx.QueryExecModeSimpleProtocol {
					require.Equal(t, want, w.Sent()-before, "%s, %s: one for all that, and one for the commit", name, mode)
				}
			}
		}
	}
}

// Where it can't stamp, the first statement says so, and so does InTx, whatever is made of it.
func TestInTx_saysThatItCantStamp(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	conn := b.db.Conn(t)
	warm(t, lease, conn)
	for name, first := range firstCalls(t.Context()) {
		_, err := conn.Exec(t.Context(), `SET fencing.stamps = 'nonsense'`)
		require.NoError(t, err)
		var seen error
		err = lease.InTx(t.Context(), conn, func(tx pgx.Tx) error {
			if seen = first(tx); name != "nothing" {
				requireCode(t, seen, "22P02")
				_, err := tx.Exec(t.Context(), insertSQL, 3, "x")
				require.ErrorIs(t, err, pgx.ErrTxClosed, name)
			}
			return nil
		})
		requireCode(t, err, "22P02")
		require.ErrorContains(t, err, `fencing: begin and stamp for resource "nightly"`)
		require.Equal(t, byte('I'), conn.PgConn().TxStatus(), name)
		_, err = conn.Exec(t.Context(), `SET fencing.stamps = ''`)
		require.NoError(t, err)
		require.NoError(t, lease.InTx(t.Context(), conn, func(pgx.Tx) error { return nil }), name)
	}
	_, err := conn.Exec(t.Context(), `SET fencing.stamps = 'nonsense'`)
	require.NoError(t, err)
	err = lease.InTx(t.Context(), conn, func(tx pgx.Tx) error {
		_, err := tx.Conn().Exec(t.Context(), "CREATE TABLE outside (id int)") // not in a transaction
		require.Error(t, err)
		return nil
	})
	requireCode(t, err, "22P02")
	require.True(t, conn.IsClosed())
	require.True(t, one[bool](t, b.observer, `SELECT to_regclass('outside') IS NULL`))
	require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
}

// firstCalls are the ways to begin, of which each says what kept it from that.
func firstCalls(ctx context.Context) map[string]func(tx pgx.Tx) error {
	return map[string]func(tx pgx.Tx) error{
		"nothing": func(pgx.Tx) error { return nil },
		"text":    func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "DELETE FROM exports WHERE false"); return err },
		"exec":    func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "DELETE FROM exports WHERE id = $1", 77); return err },
		"option":  func(tx pgx.Tx) error { _, err := tx.Exec(ctx, "SELECT $1::int", pgx.QueryExecModeExec, 7); return err },
		"query": func(tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "SELECT $1::int", 7)
			rows.Close()
			return errors.Join(err, rows.Err())
		},
		"row":       func(tx pgx.Tx) error { var n int; return tx.QueryRow(ctx, "SELECT $1::int", 7).Scan(&n) },
		"savepoint": func(tx pgx.Tx) error { _, err := tx.Begin(ctx); return err },
		"prepare":   func(tx pgx.Tx) error { _, err := tx.Prepare(ctx, "", "SELECT 7"); return err },
		"copy": func(tx pgx.Tx) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"exports"}, []string{"id"}, pgx.CopyFromRows(nil))
			return err
		},
		"batch": func(tx pgx.Tx) error {
			batch := &pgx.Batch{}
			batch.Queue("SELECT $1::int", 7)
			return tx.SendBatch(ctx, batch).Close()
		},
	}
}

// Also where somebody deallocates what was prepared, whatever the transaction begins with.
func TestInTx_beginsWithoutItsStatement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	for name, first := range firstCalls(t.Context()) {
		conn := b.db.Conn(t)
		warm(t, lease, conn)
		_, err := conn.PgConn().Exec(t.Context(), "DEALLOCATE ALL").ReadAll()
		require.NoError(t, err)
		for range 2 {
			require.NoError(t, lease.InTx(t.Context(), conn, func(tx pgx.Tx) error {
				if err := first(tx); err != nil {
					return err
				}
				_, err := tx.Exec(t.Context(), "UPDATE exports SET note = note")
				return err
			}), name)
		}
		require.NoError(t, conn.Close(t.Context()))
	}
}

// Results of the first statement that nobody has read keep the transaction from its end.
func TestInTx_leavesNoTransactionWhereResultsAreNotRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	const sql = `INSERT INTO exports VALUES ($1, 'x') RETURNING id`
	var end func()
	for name, first := range map[string]func(tx pgx.Tx){
		"query": func(tx pgx.Tx) {
			rows, err := tx.Query(t.Context(), sql, 3) //nolint:sqlclosecheck // that it is not closed is the point
			require.NoError(t, err)
			end = rows.Close
		},
		"row": func(tx pgx.Tx) {
			row := tx.QueryRow(t.Context(), sql, 3)
			end = func() { _ = row.Scan(new(int)) }
		},
		"batch": func(tx pgx.Tx) {
			batch := &pgx.Batch{}
			batch.Queue(sql, 3)
			results := tx.SendBatch(t.Context(), batch)
			end = func() { _ = results.Close() }
		},
	} {
		for _, failed := range []error{nil, errWork} {
			conn := b.db.Conn(t)
			warm(t, lease, conn)
			require.Error(t, lease.InTx(t.Context(), conn, func(tx pgx.Tx) error { first(tx); return failed }), name)
			end()
			require.True(t, conn.IsClosed(), name)
			require.Error(t, lease.InTx(t.Context(), conn, func(pgx.Tx) error { return nil }), name)
		}
	}
	require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
}

// As many round trips as without InTx, however many statements there are to be prepared.
func TestInTx_describesTheStatementsOfABatchAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lease := b.lock(t, b.fencer, "nightly")
	w := new(pgtest.Wire)
	pool := b.db.Pool(t, single, w.On)
	warm(t, lease, pool)
	for _, statements := range []int{100, 400, 600, 600} { // more than can be kept, in all and at once
		before := w.Sent()
		require.NoError(t, lease.InTx(t.Context(), pool, func(tx pgx.Tx) error {
			batch := &pgx.Batch{}
			for i := range statements {
				batch.Queue(fmt.Sprintf("SELECT %d, $1::int", statements+i), i)
			}
			return tx.SendBatch(t.Context(), batch).Close()
		}))
		require.LessOrEqual(t, w.Sent()-before, int64(5), statements)
	}
}

// A name of a prepared statement may be SQL as well.
func TestInTx_executesWhatWasPreparedUnderItsName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	conn := b.db.Conn(t)
	warm(t, lease, conn)
	for i, name := range []string{"select", "commit", "end"} {
		_, err := conn.Prepare(t.Context(), name, fmt.Sprintf(`INSERT INTO exports VALUES (%d, 'x')`, 3+i))
		require.NoError(t, err)
		err = lease.InTx(t.Context(), conn, func(tx pgx.Tx) error {
			tag, err := tx.Exec(t.Context(), name)
			require.Equal(t, "INSERT 0 1", tag.String(), name)
			return errors.Join(err, errWork)
		})
		require.ErrorIs(t, err, errWork)
		require.NoError(t, conn.Deallocate(t.Context(), name))
	}
}

// A tracer is told of each statement, as it would be without InTx.
func TestInTx_beginsAtOnceWhereStatementsAreTraced(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lease := b.lock(t, b.fencer, "nightly")
	seen := &tracedSQL{}
	pool := b.db.Pool(t, single, func(c *pgxpool.Config) { c.ConnConfig.Tracer = seen })
	warm(t, lease, pool)
	*seen = nil
	require.NoError(t, lease.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "SELECT $1::int", 7)
		return err
	}))
	require.Len(t, *seen, 3)
	require.Equal(t, "SELECT $1::int", (*seen)[1])
}

type tracedSQL []string

func (s *tracedSQL) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	*s = append(*s, data.SQL)
	return ctx
}

func (s *tracedSQL) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// describe tells what there is to see of an error.
func describe(err error) string {
	if err == nil {
		return "no error"
	}
	text := err.Error()
	if pgErr, is := errors.AsType[*pgconn.PgError](err); is {
		text += fmt.Sprintf(" at %d, %d", pgErr.Position, pgErr.InternalPosition)
	}
	return text
}
