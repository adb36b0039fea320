package fencing_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// script is what a function does with its transaction, and tells of it.
type script func(ctx context.Context, tx pgx.Tx, tell func(...any)) error

func execIn(sql string, args ...any) script {
	return func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		tag, err := tx.Exec(ctx, sql, args...)
		tell(tag.String(), describe(err))
		return err
	}
}

func queryIn(sql string, args ...any) script {
	return func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		rows, err := tx.Query(ctx, sql, args...)
		tell(describe(err))
		for rows.Next() {
			values, err := rows.Values()
			tell(values, describe(err), len(rows.FieldDescriptions()))
		}
		tell(describe(rows.Err()), rows.CommandTag().String(), rows.Next())
		return rows.Err()
	}
}

func rowIn(sql string, args ...any) script {
	return func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		var id int
		err := tx.QueryRow(ctx, sql, args...).Scan(&id)
		tell(id, describe(err))
		return err
	}
}

func batchIn(statements ...string) script {
	return func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		batch := &pgx.Batch{}
		for _, sql := range statements {
			batch.Queue(sql).Exec(func(tag pgconn.CommandTag) error { tell(tag.String()); return nil })
		}
		results := tx.SendBatch(ctx, batch)
		tell(results.Tx() == nil)
		err := results.Close()
		tell(describe(err))
		return err
	}
}

// steps goes on after errors, and returns nil.
func steps(all ...script) script {
	return func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		for _, s := range all {
			_ = s(ctx, tx, tell) // it was told
			tell(string(tx.Conn().PgConn().TxStatus()))
		}
		return nil
	}
}

var scripts = map[string]script{
	"nothing":             steps(),
	"text":                execIn(`INSERT INTO exports VALUES (3, 'three')`),
	"texts":               execIn(`INSERT INTO exports VALUES (3, 'three'); DELETE FROM exports WHERE id < 3 -- all`),
	"empty text":          steps(execIn(``), execIn(`-- none`), execIn(insertSQL, 3, "three")),
	"arguments":           execIn(insertSQL, 3, "three"),
	"named":               execIn(`INSERT INTO exports VALUES (@id, @note)`, pgx.NamedArgs{"id": 3, "note": "three"}),
	"names without use":   execIn(`INSERT INTO exports VALUES (3, 'three'); DELETE FROM exports WHERE id = 1`, pgx.NamedArgs{}),
	"name missing":        steps(execIn(`INSERT INTO exports VALUES (@id)`, pgx.StrictNamedArgs{}), execIn(insertSQL, 3, "three")),
	"mode":                execIn(insertSQL, pgx.QueryExecModeSimpleProtocol, 3, "three"),
	"formats":             queryIn(`SELECT id FROM exports ORDER BY id`, pgx.QueryResultFormats{pgx.TextFormatCode}),
	"text that is wrong":  steps(execIn(`INSERT INTO exports VALUES (3, 'three') nonsense`), execIn(insertSQL, 3, "three")),
	"text of nowhere":     steps(execIn(`INSERT INTO exports VALUES (3, größe)`), execIn(`SELECT 1`)),
	"text that is twice":  steps(execIn(`INSERT INTO exports VALUES (1, 'again')`), execIn(`SELECT 1`)),
	"second is wrong":     steps(execIn(`INSERT INTO exports VALUES (3, 'three'); SELECT nowhere`), execIn(`SELECT 1`)),
	"wrong":               steps(execIn(`INSERT INTO exports VALUES ($1, $2) nonsense`, 3, "three"), execIn(insertSQL, 3, "three")),
	"of nowhere":          steps(execIn(`INSERT INTO nowhere VALUES ($1)`, 3), execIn(`SELECT 1`)),
	"twice":               steps(execIn(insertSQL, 1, "again"), execIn(`SELECT 1`)),
	"returned":            execIn(insertSQL, 1, "again"),
	"not encoded":         steps(execIn(insertSQL, "three", "three"), execIn(insertSQL, 3, "three")),
	"too few":             steps(execIn(insertSQL, 3), execIn(insertSQL, 3, "three")),
	"refused":             execIn(`INSERT INTO others VALUES ($1, $2)`, 3, "three"),
	"refused text":        steps(execIn(`INSERT INTO others VALUES (3, 'three')`), execIn(`SELECT 1`)),
	"query":               steps(queryIn(`SELECT id, note FROM exports WHERE id < $1 ORDER BY id`, 3), execIn(insertSQL, 3, "three")),
	"query of text":       steps(queryIn(`SELECT id, note FROM exports ORDER BY id`), execIn(insertSQL, 3, "three")),
	"query of none":       steps(queryIn(`SELECT id FROM exports WHERE id = $1`, 7), queryIn(`DELETE FROM exports`)),
	"query that fails":    steps(queryIn(`SELECT 1 / $1::int`, 0), execIn(`SELECT 1`)),
	"fails in the middle": steps(queryIn(`SELECT 1 / (3 - i) FROM generate_series(1, $1) i`, 7), execIn(`SELECT 1`)),
	"wrong query":         steps(queryIn(`SELECT $1::int nonsense nonsense`, 7), execIn(`SELECT 1`)),
	"query of nothing":    steps(queryIn(``), execIn(insertSQL, 3, "three")),
	"row":                 steps(rowIn(`SELECT id FROM exports WHERE id = $1`, 2), execIn(insertSQL, 3, "three")),
	"no row":              steps(rowIn(`SELECT id FROM exports WHERE id = $1`, 7), execIn(insertSQL, 3, "three")),
	"row that fails":      steps(rowIn(`SELECT 1 / $1::int`, 0), execIn(`SELECT 1`)),
	"row of texts":        steps(rowIn(`SELECT note FROM exports WHERE id = $1`, 2), execIn(insertSQL, 3, "three")),
	"wrong row":           steps(rowIn(`SELECT nowhere FROM exports WHERE id = $1`, 2), execIn(`SELECT 1`)),
	"batch":               batchIn(`INSERT INTO exports VALUES (3, 'three')`, `DELETE FROM exports`),
	"batch that fails":    steps(batchIn(`INSERT INTO exports VALUES (3, 'three')`, `INSERT INTO exports VALUES (1, 'one')`, `SELECT 1`), execIn(`SELECT 1`)),
	"wrong batch":         steps(batchIn(`INSERT INTO exports VALUES (3, 'three')`, `nonsense`), execIn(`SELECT 1`)),
	"empty batch":         steps(batchIn(), execIn(insertSQL, 3, "three")),
	"isolation":           execIn(`SET TRANSACTION ISOLATION LEVEL SERIALIZABLE`),
	"batch of its own": func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		results := tx.SendBatch(ctx, beginning())
		err := results.Close()
		tell(describe(err))
		return err
	},
	"savepoint": func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		inner, err := tx.Begin(ctx)
		tell(describe(err))
		_, err = inner.Exec(ctx, insertSQL, 1, "again")
		tell(describe(err), describe(inner.Rollback(ctx)))
		inner, err = tx.Begin(ctx)
		tell(describe(err))
		_, err = inner.Exec(ctx, insertSQL, 3, "three")
		tell(describe(err), describe(inner.Commit(ctx)))
		return err
	},
	"prepare": func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		sd, err := tx.Prepare(ctx, "mine", insertSQL)
		tell(sd.Name, len(sd.ParamOIDs), describe(err))
		err = execIn("mine", 3, "three")(ctx, tx, tell)
		tell(describe(tx.Conn().Deallocate(ctx, "mine")))
		return err
	},
	"context that has ended": func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = execIn(insertSQL, 3, "three")(ended, tx, tell) // it was told
		return execIn(insertSQL, 4, "four")(ctx, tx, tell)
	},
	"text and a context that has ended": func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_ = execIn(`DELETE FROM exports`)(ended, tx, tell) // it was told
		return execIn(insertSQL, 4, "four")(ctx, tx, tell)
	},
	"large object": func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		objects := tx.LargeObjects()
		oid, err := objects.Create(ctx, 0)
		tell(oid > 0, describe(err))
		tell(describe(objects.Unlink(ctx, oid)))
		return err
	},
	"connection": func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		_, err := tx.Conn().Exec(ctx, insertSQL, 3, "three")
		tell(string(tx.Conn().PgConn().TxStatus()), describe(err))
		return err
	},
	"copy": func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		n, err := tx.CopyFrom(ctx, pgx.Identifier{"exports"}, []string{"id", "note"}, pgx.CopyFromRows([][]any{{3, "three"}, {4, "four"}}))
		tell(n, describe(err))
		return err
	},
	"rows closed early": func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		rows, err := tx.Query(ctx, `SELECT i FROM generate_series(1, $1) i`, 10000)
		tell(describe(err), rows.Next())
		rows.Close()
		rows.Close()
		tell(describe(rows.Err()), rows.Next())
		return execIn(insertSQL, 3, "three")(ctx, tx, tell)
	},
	"rows not scanned": func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		rows, err := tx.Query(ctx, `SELECT note FROM exports WHERE id < $1`, 10)
		var n int
		tell(describe(err), rows.Next(), describe(rows.Scan(&n)), rows.Next(), describe(rows.Err()))
		return execIn(insertSQL, 3, "three")(ctx, tx, tell)
	},
	"committed": func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		tell(describe(tx.Commit(ctx)), describe(tx.Commit(ctx)), describe(tx.Rollback(ctx)))
		return execIn(insertSQL, 3, "three")(ctx, tx, tell)
	},
	"written and committed": func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		err := execIn(insertSQL, 3, "three")(ctx, tx, tell)
		tell(describe(tx.Commit(ctx)))
		return err
	},
	"rolled back": func(ctx context.Context, tx pgx.Tx, tell func(...any)) error {
		tell(describe(tx.Rollback(ctx)), describe(tx.Rollback(ctx)))
		return queryIn(`SELECT 1`)(ctx, tx, tell)
	},
	"committed in a text": steps(execIn(`INSERT INTO exports VALUES (3, 'three'); COMMIT`), execIn(`SELECT 1`)),
}

// What a function sees of its transaction is what it sees of one of pgx's that was stamped first.
func TestInTx_isAsAnyTransactionOfPgx(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.guarded(t, "others", "hourly")
	lease := b.lock(t, b.fencer, "nightly")
	for _, mode := range modes {
		set := func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }
		plain, late := b.db.Pool(t, single, set), b.db.Pool(t, single, set)
		warm(t, lease, late)
		run := func(script script, in func(context.Context, func(pgx.Tx) error) error) (told []string) {
			tell := func(what ...any) { told = append(told, fmt.Sprint(what...)) }
			err := in(t.Context(), func(tx pgx.Tx) error { return script(t.Context(), tx, tell) })
			tell("in all: ", describe(err))
			tell(b.contents(t, "exports"))
			return told
		}
		for name, script := range scripts {
			reset := func() {
				b.exec(t, `BEGIN`)
				b.exec(t, `SELECT fencing.stamp('nightly', $1)`, int64(lease.Token()))
				b.exec(t, `DELETE FROM exports`)
				b.exec(t, `INSERT INTO exports VALUES (1, 'one'), (2, 'two')`)
				b.exec(t, `COMMIT`)
			}
			for range 2 { // not known, and prepared
				reset()
				want := run(script, func(ctx context.Context, fn func(pgx.Tx) error) error {
					return fencing.Translate(pgx.BeginFunc(ctx, plain, func(tx pgx.Tx) error {
						if err := lease.Stamp(ctx, tx); err != nil {
							return err
						}
						return fn(tx)
					}))
				})
				reset()
				got := run(script, func(ctx context.Context, fn func(pgx.Tx) error) error { return lease.InTx(ctx, late, fn) })
				require.Equal(t, want, got, "%s, %s", name, mode)
				require.Zero(t, late.Stat().AcquiredConns())
			}
		}
	}
}
