package fencing

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
)

// sendFirst sends statements with BEGIN and the stamp before them, as one batch, and returns the
// results of the statements. It returns nil if nothing is begun, because pgx finds fault with a
// statement before it sends it: it is to be sent alone, which says what is wrong.
func (tx *lateTx) sendFirst(ctx context.Context, statements ...*pgx.QueuedQuery) pgx.BatchResults {
	if *tx.known == unfitting && tx.session.mode == pgx.QueryExecModeCacheStatement {
		return nil // prepared statements vanish
	}
	encoded, ok := tx.session.encodes(ctx, tx.conn, statements)
	if !ok {
		return nil
	}
	all := &pgx.Batch{}
	all.Queue("begin")
	all.QueuedQueries = append(append(all.QueuedQueries, tx.lease.stampForTx(tx.known)), encoded...)
	results := tx.conn.SendBatch(ctx, all)
	_, err := results.Exec()
	if err == nil {
		if _, err = results.Exec(); err == nil {
			tx.begun = true
			return results
		}
	}
	_ = results.Close() // the same error
	if !tx.conn.IsClosed() && (tx.conn.PgConn().TxStatus() == 'I' || *tx.known == prepared && isMissing(err)) {
		tx.goBack(err)
		return nil
	}
	return pgx.FailedBatchResults(&pgx.Batch{}, tx.fail(err))
}

// stampForTx is the stamp as a statement of a batch.
func (l *Lease) stampForTx(known *stamping) *pgx.QueuedQuery {
	sql := stampText
	if *known == prepared {
		sql = stampName
	}
	return &pgx.QueuedQuery{SQL: sql, Arguments: []any{l.stampJSON(), fmt.Sprintf("%d ms", l.maxIdleMillis())}}
}

// maxIdleMillis is Config.MaxIdle. More fits neither the setting nor, before PostgreSQL 15, an
// interval in one unit.
func (l *Lease) maxIdleMillis() int64 {
	return min(l.fencer.config.MaxIdle.Milliseconds(), math.MaxInt32)
}

func (tx *lateTx) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	if !tx.begun && batch.Len() > 0 && tx.session.isBatchable(nil) && !beginsTransaction(batch) {
		if results := tx.sendFirst(ctx, batch.QueuedQueries...); results != nil {
			return results
		}
	}
	if err := tx.begin(ctx); err != nil {
		return pgx.FailedBatchResults(batch, err)
	}
	return tx.Tx.SendBatch(ctx, batch)
}

func (tx *lateTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if results := tx.query(ctx, sql, args); results != nil {
		rows, err := results.Query()
		r := &lateRows{Rows: rows, results: results}
		if err == nil {
			return r, nil
		}
		r.failed = true
		r.Close()
		if tx.err != nil {
			return r, err
		}
		return r, nil // the rows have the error, as with pgx
	}
	if err := tx.begin(ctx); err != nil {
		results := pgx.FailedBatchResults(&pgx.Batch{}, err)
		rows, err := results.Query()
		return &lateRows{Rows: rows, results: results, failed: true}, err
	}
	return tx.Tx.Query(ctx, sql, args...)
}

func (tx *lateTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if results := tx.query(ctx, sql, args); results != nil {
		return &lateRow{Row: results.QueryRow(), results: results}
	}
	if err := tx.begin(ctx); err != nil {
		return &lateRow{err: err}
	}
	return tx.Tx.QueryRow(ctx, sql, args...)
}

// query returns nil if the statement can't be the first of a batch.
func (tx *lateTx) query(ctx context.Context, sql string, args []any) pgx.BatchResults {
	if tx.begun || sql == "" || !tx.session.isBatchable(args) {
		return nil
	}
	return tx.sendFirst(ctx, &pgx.QueuedQuery{SQL: sql, Arguments: args})
}
