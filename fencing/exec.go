package fencing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Batcher sends batches: a pool or a connection, and not a transaction.
type Batcher interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// Exec executes one statement that carries the token. Stamp and statement travel in one
// round trip, and are one transaction, which the server commits with the statement. It is
// the shortest way to write; [Lease.InTx] is for more than one statement, [Lease.SendBatch]
// for several that don't depend on each other's results.
//
// It returns the statement's command tag. A refused write matches [ErrStale], [ErrUnstamped]
// or [ErrUnknownToken], and changes nothing; so does every other error of the server. The
// error is [ErrNotInstalled] where the schema fencing is not in db's database. After an error
// of ctx or of the connection the statement may have been committed.
//
// db is a pool or a connection that is not in a transaction; a pooler in transaction mode may
// be between. The statement is none that controls transactions, and no COPY; an argument that
// is a pgx.QueryRewriter, such as pgx.NamedArgs, works as with pgx. The first call on a
// connection takes one or two round trips more, to prepare the statements. ctx bounds the call.
func (l *Lease) Exec(ctx context.Context, db Batcher, sql string, args ...any) (pgconn.CommandTag, error) {
	var tag pgconn.CommandTag
	batch := &pgx.Batch{}
	batch.Queue(sql, args...).Exec(func(ct pgconn.CommandTag) error {
		tag = ct
		return nil
	})
	if err := l.SendBatch(ctx, db, batch); err != nil {
		return pgconn.CommandTag{}, err
	}
	return tag, nil
}

// SendBatch sends a batch whose statements carry the token. Stamp and statements travel in one
// round trip, and are one transaction: if one of them fails, none has done anything. What they
// return goes to the functions that were queued with them. An error of such a function is
// returned, but takes nothing back. Otherwise SendBatch is as [Lease.Exec].
func (l *Lease) SendBatch(ctx context.Context, db Batcher, batch *pgx.Batch) error {
	if err := l.sendBatch(ctx, db, batch); err != nil {
		return l.observe(ctx, fmt.Errorf("fencing: write for resource %q: %w", l.resource, Translate(err)))
	}
	return nil
}

func (l *Lease) sendBatch(ctx context.Context, db Batcher, batch *pgx.Batch) error {
	if ctx == nil {
		return errNilContext
	}
	if token := l.Token(); token <= 0 {
		return fmt.Errorf("token %d is not valid: tokens start at 1", token)
	}
	if batch == nil || batch.Len() == 0 {
		return errors.New("there is no statement")
	}
	for _, q := range batch.QueuedQueries {
		if err := refuseStatement(q.SQL); err != nil {
			return err
		}
	}
	switch db := db.(type) {
	case nil:
		return errors.New("db is nil")
	case pgx.Tx:
		return errors.New("db is a transaction: stamp it with Lease.Stamp, and use its own methods")
	case *pgxpool.Pool:
		conn, err := db.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		return l.sendBatchOn(ctx, conn.Conn(), batch)
	case *pgxpool.Conn:
		return l.sendBatchOn(ctx, db.Conn(), batch)
	case *pgx.Conn:
		return l.sendBatchOn(ctx, db, batch)
	default:
		return send(ctx, db, l.stampByFunction(), batch)
	}
}

// sendBatchOn asks once on each connection whether fencing is installed and may be used. From
// then on it spares the call of the function.
func (l *Lease) sendBatchOn(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch) error {
	if conn.PgConn().TxStatus() == 'T' || conn.PgConn().TxStatus() == 'E' {
		return errors.New("the connection is in a transaction: stamp that with Lease.Stamp")
	}
	known := stampingOf(conn)
	if *known != unknown {
		return send(ctx, conn, l.stampBySetting(), batch)
	}
	err := send(ctx, conn, l.stampByFunction(), batch)
	if err == nil {
		*known = called
	}
	return err
}

// send sends the stamp and the batch in one pipeline, with one Sync at its end: that makes them
// one transaction (PostgreSQL manual, section 55.2.4).
func send(ctx context.Context, db Batcher, stamp *pgx.QueuedQuery, batch *pgx.Batch) error {
	all := &pgx.Batch{QueuedQueries: append([]*pgx.QueuedQuery{stamp}, batch.QueuedQueries...)}
	return db.SendBatch(ctx, all).Close()
}

func (l *Lease) stampByFunction() *pgx.QueuedQuery {
	return &pgx.QueuedQuery{SQL: stampSQL, Arguments: []any{l.resource, int64(l.Token()), l.fencer.config.MaxIdle}}
}

// stampBySetting does what fencing.stamp does. A transaction that ends with its round trip
// needs no limit on how long it may sit idle.
func (l *Lease) stampBySetting() *pgx.QueuedQuery {
	return &pgx.QueuedQuery{SQL: stampSettingSQL, Arguments: []any{l.stampJSON()}}
}

// stampJSON is the stamp as fencing.stamp writes it.
func (l *Lease) stampJSON() string {
	var stamp strings.Builder
	stamp.WriteString("{\n")
	encoder := json.NewEncoder(&stamp)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(l.resource) // a string; it ends with a newline, which is space in JSON
	return strings.TrimSuffix(stamp.String(), "\n") + fmt.Sprintf(":%d}", l.Token())
}
