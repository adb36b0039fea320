package advisory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// Tx runs a transaction on the very session that holds the lock: begin, fn, and
// commit, or rollback if fn returns an error or panics. If the lock is lost, the
// session is, and the transaction can't commit. (It can still be that the server
// gave the lock to another while the commit was under way; see package fencing.)
// It needs no connection of the pool.
//
// It returns fn's error, or that of begin or commit; [ErrUnlocked] or a
// [LostError] without calling fn if the lock has ended already. One transaction
// runs at a time: others, and Unlock, wait for it, Unlock not for longer than
// [Config.UnlockTimeout], after which it ends the session. fn must not unlock, nor
// use other methods of the [Session] whose lock it is: they wait for fn. What fn
// leaves on the session beyond the transaction, by SET or LISTEN, stays on the
// connection when that returns to the pool. Advisory locks that fn takes do not: those
// on a key of the Lock's are freed with it, and all others when the connection returns.
// Notifications go to the pool's OnNotification. Without one, fn can wait for those that
// come while it runs; the others are dropped.
//
// ctx bounds the wait for the turn, the BEGIN and the COMMIT, for which Tx returns at
// once when it ends. Between two statements its end costs no more than the
// transaction, which is rolled back. Rows, and batches, that fn has left open are read to
// their end, for no longer than [Config.HeartbeatTimeout], after which the lock is lost;
// so it is if they were opened by tx.Conn(). In the middle of a statement of fn's, or of the COMMIT, the end of a context
// makes pgx close the connection by default, and the lock is lost.
//
// While fn runs no heartbeat is sent: a loss shows in fn's next statement. Tx has
// bounds of its own instead, after which it ends the session and the lock is lost:
// [Config.HeartbeatTimeout] for the BEGIN and the ROLLBACK, [Config.Heartbeat] +
// [Config.HeartbeatTimeout] for the COMMIT, and [Config.TxTimeout] for all, after which
// Done closes even if fn has not returned. The server in its turn looks for its client
// while it works on a statement: after the BEGIN, also that of options, there is a SET
// LOCAL of client_connection_check_interval to a third of [Config.VanishTimeout] (from
// PostgreSQL 14 on Linux).
func (k *Lock) Tx(ctx context.Context, options pgx.TxOptions, fn func(pgx.Tx) error) error {
	if !k.made() {
		return ErrNotOwner
	}
	if ctx == nil {
		return wrap(inTx, k.keys, errNilContext)
	}
	if ctx.Err() != nil {
		return wrap(inTx, k.keys, ended(ctx))
	}
	if err := k.lockConn(ctx); err != nil {
		return err
	}
	tx, err := k.beginTx(ctx, options)
	if err != nil {
		return err
	}
	stop := k.limitTx()
	defer stop()
	hasReturned := false
	defer func() {
		if !hasReturned { // it panics, or ends its goroutine
			_ = k.endTx(ctx, tx, errNoReturn)
		}
	}()
	err = fn(tx.Tx())
	hasReturned = true
	return k.endTx(ctx, tx, err)
}

// lockConn locks the connection, and waits for that as long as the lock is held.
func (k *Lock) lockConn(ctx context.Context) error {
	held, stop := k.Context(ctx)
	defer stop()
	err := k.conn.lock(held)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return wrap(inTx, k.keys, ended(ctx))
	default:
		return k.Err()
	}
}

// inTx says what was under way, in errors.
const inTx = "transaction on the session of"

// beginTx begins a transaction. The caller has locked the connection, and has not any
// more after an error. When ctx ends first it returns at once, and whatever is under way goes on
// without the caller: a heartbeat or a BEGIN, whose end says whether the session lives.
func (k *Lock) beginTx(ctx context.Context, options pgx.TxOptions) (*connhold.Transaction, error) {
	type beginning struct {
		tx  *connhold.Transaction
		err error
	}
	if ctx.Done() == nil {
		return k.beginTxNow(ctx, options)
	}
	begun, left := make(chan beginning), make(chan struct{})
	// Ends within HeartbeatTimeout for each of a heartbeat, the BEGIN and the ROLLBACK.
	// It has the connection locked until then, for which Close waits.
	go func() {
		tx, err := k.beginTxNow(ctx, options)
		select {
		case begun <- beginning{tx, err}:
		case <-left:
			if err == nil {
				_ = k.endTx(ctx, tx, errNoReturn)
			}
		}
	}()
	select {
	case b := <-begun:
		return b.tx, b.err
	case <-ctx.Done():
		close(left)
		return nil, wrap(inTx, k.keys, ended(ctx))
	}
}

func (k *Lock) beginTxNow(ctx context.Context, options pgx.TxOptions) (*connhold.Transaction, error) {
	limit := k.locker.config.HeartbeatTimeout
	if k.claimed.Load() || k.conn.hold.Unwatch(limit) != nil {
		k.conn.unlock()
		<-k.Done() // whoever has claimed it says why, at once
		return nil, k.Err()
	}
	k.conn.beginTx()
	options.BeginQuery = k.conn.session.BeginSQL(options)
	tx, err := k.conn.hold.Begin(ctx, limit, options)
	if err != nil {
		return nil, k.afterTx(err, err)
	}
	return tx, nil
}

// endTx ends a transaction, and unlocks the connection.
func (k *Lock) endTx(ctx context.Context, tx *connhold.Transaction, err error) error {
	err = tx.End(ctx, k.locker.config.Heartbeat+k.locker.config.HeartbeatTimeout, err)
	return k.afterTx(err, tx.Silence())
}

// afterTx watches the session again, or tells of its loss, and unlocks the connection. It takes
// and returns the error of the transaction. silence is another if the server has not
// answered.
func (k *Lock) afterTx(err, silence error) error {
	if k.in != nil {
		k.in.session.isShared = true // fn may have locked on the session
	}
	loss := k.conn.endTx()
	if loss == nil && k.conn.hold.IsAlive() {
		if k.locker.owned { // fn may have set what is set for good there
			lockproto.Invalidate(k.conn.hold)
		}
		k.conn.watch()
		k.conn.unlock()
		return err
	}
	k.conn.unlock()
	switch {
	case loss != nil && err != nil:
		err = fmt.Errorf("%w: %w", loss.Cause, err)
	case loss != nil:
		// It had ended before it was to be broken off.
	case errors.Is(silence, os.ErrDeadlineExceeded):
		loss = &connhold.Loss{Reason: connhold.Unresponsive, Cause: silence}
	default:
		loss = &connhold.Loss{Reason: connhold.Disconnected, Cause: errDiedInTx}
	}
	k.conn.lost(loss)
	return err
}

// limitTx ends the session when the transaction that is under way takes too long.
func (k *Lock) limitTx() (stop func()) {
	conn, limit := k.conn, k.locker.config.TxTimeout
	loss := &connhold.Loss{Reason: connhold.Unresponsive, Cause: fmt.Errorf("%w, %s", errTxTooLong, limit)}
	run := conn.running()
	timer := time.AfterFunc(limit, func() {
		if conn.breakOff(run, loss) {
			conn.owner.breakOff(loss)
		}
	})
	return func() { timer.Stop() }
}
