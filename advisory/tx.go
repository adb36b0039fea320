package advisory

import (
	"context"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
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
// connection when that returns to the pool.
//
// ctx bounds the wait for the turn and the transaction. When it ends in the
// middle of a statement pgx closes the connection by default, and the lock is
// lost. While fn runs no heartbeat is sent: a loss shows in fn's next statement,
// on a link that has gone silent when ctx ends or TCP gives up, and Done closes
// when fn has returned. The server in its turn looks for its client while it works
// on a statement: after the BEGIN, also that of options, there is a SET LOCAL of
// client_connection_check_interval to a third of [Config.VanishTimeout] (from
// PostgreSQL 14 on Linux).
func (k *Lock) Tx(ctx context.Context, options pgx.TxOptions, fn func(pgx.Tx) error) error {
	if !k.made() {
		return ErrNotOwner
	}
	if err := k.seat.take(ctx); err != nil {
		return wrap("transaction on the session of", k.keys, err)
	}
	if k.claimed.Load() || k.seat.hold.Unwatch(k.locker.config.HeartbeatTimeout) != nil {
		k.seat.pass()
		<-k.Done() // whoever has claimed it says why, at once
		return k.Err()
	}
	// Also when fn panics.
	defer k.afterTx()
	options.BeginQuery = k.seat.way.begin(options)
	return k.seat.hold.Use(func(conn *pgx.Conn) error {
		err := pgx.BeginTxFunc(ctx, conn, options, fn)
		if err != nil {
			connhold.RollBack(ctx, conn, k.locker.config.HeartbeatTimeout) // else the lock is lost
		}
		return err
	})
}

// begin begins a transaction, in which the server is to look for the client while it
// works on a statement.
func (w *way) begin(options pgx.TxOptions) string {
	begin := options.BeginQuery
	if begin == "" {
		begin = strings.Join(slices.DeleteFunc([]string{
			"BEGIN", isolation(options.IsoLevel), string(options.AccessMode), string(options.DeferrableMode),
		}, func(s string) bool { return s == "" }), " ")
	}
	return begin + w.afterBegin
}

func isolation(level pgx.TxIsoLevel) string {
	if level == "" {
		return ""
	}
	return "ISOLATION LEVEL " + string(level)
}

// afterTx watches the session again, or tells of its loss, and passes the turn.
func (k *Lock) afterTx() {
	if k.seat.hold.IsAlive() {
		if k.locker.owned { // fn may have set what is set for good there
			forget(k.seat.hold)
		}
		k.seat.watch()
		k.seat.pass()
		return
	}
	k.seat.pass()
	k.seat.lost(&connhold.Loss{Reason: connhold.Disconnected, Cause: errDiedInTx})
}
