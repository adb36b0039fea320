package fencing

import (
	"context"
	"errors"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/internal/rollback"
)

// lateTx is a transaction that has not begun: BEGIN and the stamp travel with its first
// statement, and save a round trip. From then on it is pgx's own.
//
// Whatever can't travel in company begins the transaction first: what is no statement, such as
// a savepoint or COPY, options that a batch does not take, and statements that pgx finds fault
// with before it sends them. So errors are the same as with pgx, and leave the transaction in
// the same state.
type lateTx struct {
	pgx.Tx // of the connection, from the beginning; or a closed one
	ctx    context.Context
	lease  *Lease
	conn   *pgx.Conn

	session *session
	known   *stamping

	begun bool  // or over
	err   error // that of BEGIN or of the stamp
}

// isLate reports whether transactions on the connection may begin late. What a tracer is told
// of is not to change.
func (s *stamping) isLate(conn *pgx.Conn) bool {
	return (*s == prepared || *s == unfitting) && conn.PgConn().TxStatus() == 'I' && !sessionOf(conn).traced
}

// inTxLate is InTx on a connection that is known to have fencing.
func (l *Lease) inTxLate(ctx context.Context, conn *pgx.Conn, known *stamping, fn func(pgx.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return l.notBegun(err)
	}
	tx := &lateTx{Tx: openTx(conn), ctx: ctx, lease: l, conn: conn, session: sessionOf(conn), known: known}
	err := pgx.BeginFunc(ctx, tx.beginner(), fn)
	if tx.err != nil {
		return tx.err
	}
	return Translate(err)
}

// beginner gives pgx the transaction to run a function in.
func (tx *lateTx) beginner() beginnerFunc {
	return func(context.Context) (pgx.Tx, error) { return tx, nil }
}

type beginnerFunc func(ctx context.Context) (pgx.Tx, error)

func (b beginnerFunc) Begin(ctx context.Context) (pgx.Tx, error) { return b(ctx) }

// openTx returns a transaction of pgx's that is open, without sending anything: it is that of a
// batch whose only statement would be BEGIN, and is taken out.
func openTx(conn *pgx.Conn) pgx.Tx {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	batch.QueuedQueries = nil
	return conn.SendBatch(context.Background(), batch).Tx()
}

// closedTx returns a transaction of pgx's that is over.
func closedTx() pgx.Tx {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(batch, pgx.ErrTxClosed).Tx()
}

// begin begins and stamps in a round trip of its own.
func (tx *lateTx) begin(ctx context.Context) error {
	if tx.begun {
		return nil
	}
	if ctx.Err() != nil {
		ctx = tx.ctx // the statement fails, and the transaction goes on, as with pgx
	}
	_, err := tx.conn.Exec(ctx, tx.lease.beginText(tx.known))
	if err == nil {
		tx.begun = true
		return nil
	}
	if *tx.known == prepared && isMissing(err) {
		tx.goBack(err)
		return tx.begin(ctx)
	}
	return tx.fail(err)
}

// goBack has the transaction begin in another way, after an error that is not for the function.
func (tx *lateTx) goBack(err error) {
	if isMissing(err) {
		*tx.known = unfitting
	}
	rollback.Run(tx.ctx, tx.conn, rollbackLimit)
}

// fail ends the transaction, which did not begin or was not stamped.
func (tx *lateTx) fail(err error) error {
	rollback.Run(tx.ctx, tx.conn, rollbackLimit)
	tx.begun, tx.Tx, tx.err = true, closedTx(), tx.lease.notBegun(err)
	return tx.err
}

// Commit commits a transaction without a statement, too: whoever can't stamp is told so.
func (tx *lateTx) Commit(ctx context.Context) error {
	if tx.begun {
		err := tx.Tx.Commit(ctx)
		if err != nil && !errors.Is(err, pgx.ErrTxClosed) && tx.conn.PgConn().IsBusy() {
			// Until the results of the first statement are read, the status of the connection
			// is that of before, for which pgx would leave it open, and in the transaction.
			_ = tx.conn.Close(ctx)
		}
		return err
	}
	_, err := tx.execText(ctx, "commit")
	tx.begun, tx.Tx = true, closedTx()
	return err
}

func (tx *lateTx) Rollback(ctx context.Context) error {
	if tx.begun {
		return tx.Tx.Rollback(ctx)
	}
	tx.begun, tx.Tx = true, closedTx()
	return nil
}

func (tx *lateTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := tx.begin(ctx); err != nil {
		return nil, err
	}
	return tx.Tx.Begin(ctx)
}

func (tx *lateTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := tx.begin(ctx); err != nil {
		return nil, err
	}
	return tx.Tx.Prepare(ctx, name, sql)
}

func (tx *lateTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, source pgx.CopyFromSource) (int64, error) {
	if err := tx.begin(ctx); err != nil {
		return 0, err
	}
	return tx.Tx.CopyFrom(ctx, table, columns, source)
}

// LargeObjects can return no error: what is done with them does.
func (tx *lateTx) LargeObjects() pgx.LargeObjects {
	_ = tx.begin(tx.ctx)
	return tx.Tx.LargeObjects()
}

// Conn can return no error either: if the transaction does not begin, the connection is closed,
// so that nothing is done outside of one.
func (tx *lateTx) Conn() *pgx.Conn {
	if tx.begin(tx.ctx) != nil || tx.err != nil {
		_ = tx.conn.Close(tx.ctx)
	}
	return tx.conn
}

// Exec sends what has no arguments as pgx does, as a text that may have several statements,
// and BEGIN and the stamp before it.
func (tx *lateTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	goesFirst := !tx.begun && !isWord(sql) // which may be the name of a prepared statement
	if goesFirst {
		if text, rest, err := rewritten(ctx, tx.conn, sql, args); err == nil && len(rest) == 0 {
			return tx.execText(ctx, text)
		}
	}
	if goesFirst && tx.session.isBatchable(args) {
		if results := tx.sendFirst(ctx, &pgx.QueuedQuery{SQL: sql, Arguments: args}); results != nil {
			tag, err := results.Exec()
			if closed := results.Close(); err == nil {
				err = closed
			}
			return tag, err
		}
	}
	if err := tx.begin(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return tx.Tx.Exec(ctx, sql, args...)
}

func (tx *lateTx) execText(ctx context.Context, sql string) (tag pgconn.CommandTag, err error) {
	first := tx.lease.beginText(tx.known) + "; "
	results := tx.conn.PgConn().Exec(ctx, first+sql)
	n := 0
	for results.NextResult() {
		of, failed := results.ResultReader().Close()
		if err = failed; err != nil {
			break
		}
		if n++; n > 2 {
			tag = of
		}
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	switch {
	case n >= 2: // BEGIN and the stamp
		tx.begun = true
		return tag, moved(err, utf8.RuneCountInString(first))
	case tx.conn.IsClosed():
		return pgconn.CommandTag{}, tx.fail(err)
	case n == 1 && (*tx.known != prepared || !isMissing(err)):
		return pgconn.CommandTag{}, tx.fail(err)
	}
	// The text can't be parsed, and nothing was done, or the prepared stamp is gone.
	tx.goBack(err)
	if err := tx.begin(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return tx.Tx.Exec(ctx, sql)
}

// isWord reports whether a text is one word, without anything around it.
func isWord(sql string) bool { return sql != "" && len(word(sql)) == len(sql) }

// moved is an error in a text that was not alone.
func moved(err error, by int) error {
	pgErr, is := errors.AsType[*pgconn.PgError](err)
	if !is || int(pgErr.Position) <= by {
		return err
	}
	pgErr.Position -= int32(by)
	return err
}

// isBatchable reports whether a batch takes the arguments, and whether one works as a statement
// alone does.
func (s *session) isBatchable(args []any) bool {
	switch s.mode {
	case pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeExec:
	default:
		return false
	}
	if len(args) == 0 {
		return true
	}
	switch args[0].(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
		return false
	}
	return true
}

// beginsTransaction reports whether a batch is one of pgx.Batch.BeginTx, which pgx refuses.
func beginsTransaction(batch *pgx.Batch) bool {
	return batch.Len() > 0 && strings.EqualFold(word(skipSpace(batch.QueuedQueries[0].SQL)), "BEGIN")
}
