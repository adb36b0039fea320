//go:build unix

package worker

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
	"github.com/pgadvisory/pgadvisory/fencing"
)

// write is one guarded transaction: a row for the journal, and often a new
// content of the register, made of the one before. It returns what came of it.
func (g *grant) write(lease *fencing.Lease) history.Outcome {
	w := &write{
		grant: g, op: g.nextOp(), token: int64(lease.Token()), swap: g.chance(60),
		before: g.thinking(30), after: g.thinking(50),
	}
	switch long := g.between(5*time.Millisecond, 30*time.Millisecond); g.Habit {
	case SlowToWrite:
		w.swap, w.before = false, long
	case SlowToCommit:
		w.after = long
	case NoHabit, Persistent, LostBeforeDraw, Lingering:
		// what it has drawn
	}
	options := pgx.TxOptions{IsoLevel: g.isolation()}
	ctx, cancel := context.WithTimeout(context.Background(), callLimit)
	defer cancel()
	switch n := g.rand.IntN(100); {
	case n < 60, n >= 80 && g.isLeased(g.key): // that has no session
		w.begin(options, false)
		return w.end(lease.InTx(ctx, isolated{g.pool, options}, w.inTx(ctx)))
	case n < 80:
		w.begin(options, false)
		return w.end(pgx.BeginTxFunc(ctx, g.pool, options, func(tx pgx.Tx) error {
			if err := fencing.Stamp(ctx, tx, g.key, lease.Token()); err != nil {
				return err
			}
			return w.inTx(ctx)(tx)
		}))
	default:
		w.begin(options, true)
		return w.end(lease.Tx(ctx, options, func(tx pgx.Tx) error {
			if err := lease.Stamp(ctx, tx); err != nil {
				return err
			}
			return w.inTx(ctx)(tx)
		}))
	}
}

func (g *grant) isolation() pgx.TxIsoLevel {
	switch n := g.rand.IntN(100); {
	case g.Habit == SlowToCommit, n < 60 && g.Habit != SlowToWrite:
		return pgx.ReadCommitted
	case n < 80:
		return pgx.RepeatableRead
	default:
		return pgx.Serializable
	}
}

func (c *client) thinking(percent int) time.Duration {
	if !c.chance(percent) {
		return 0
	}
	return c.between(time.Millisecond, 15*time.Millisecond)
}

// isolated begins transactions of one kind.
type isolated struct {
	fencing.Beginner
	options pgx.TxOptions
}

func (b isolated) BeginTx(ctx context.Context, _ pgx.TxOptions) (pgx.Tx, error) {
	return b.Beginner.BeginTx(ctx, b.options)
}

// write is one write while it is under way.
type write struct {
	*grant
	op            string
	token         int64
	swap          bool
	before, after time.Duration // to think, while the transaction is open
	committing    bool
}

func (w *write) begin(options pgx.TxOptions, onSession bool) {
	w.tell(history.Event{
		Kind: history.WriteBegin, Op: w.op, Hold: w.grant.op, Key: w.key, Token: w.token,
		How: string(options.IsoLevel), Swap: w.swap, OnSession: onSession,
	})
}

func (w *write) inTx(ctx context.Context) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		var was string
		var era int
		if err := tx.QueryRow(ctx, readSQL(w.key)).Scan(&was, &era); err != nil {
			return err
		}
		pause(ctx, w.before)
		if _, err := tx.Exec(ctx, journalSQL, w.key, w.op, w.Worker, w.Segment, w.swap); err != nil {
			return err
		}
		if w.swap {
			if _, err := tx.Exec(ctx, registerSQL(w.key), w.op); err != nil {
				return err
			}
		}
		pause(ctx, w.after)
		w.committing = true
		w.tell(history.Event{Kind: history.Commit, Op: w.op, Key: w.key, Was: was, Era: era})
		return nil
	}
}

func (w *write) end(err error) history.Outcome {
	e := history.Event{Kind: history.WriteEnd, Op: w.op, Key: w.key, Outcome: w.outcome(err)}
	if err != nil {
		e.Err = brief(err)
	}
	w.tell(e)
	return e.Outcome
}

// outcome is Unknown where a commit was asked for and no answer to it is there.
func (w *write) outcome(err error) history.Outcome {
	err = fencing.Translate(err)
	pgErr, answered := errors.AsType[*pgconn.PgError](err)
	answered = answered && pgErr.SeverityUnlocalized == "ERROR"
	switch {
	case err == nil:
		return history.OK
	case errors.Is(err, fencing.ErrStale):
		return history.Stale
	case errors.Is(err, fencing.ErrUnstamped), errors.Is(err, fencing.ErrUnknownToken):
		return history.Foreign
	case w.committing && !answered && !errors.Is(err, pgx.ErrTxCommitRollback):
		return history.Unknown
	default:
		return history.Failed
	}
}

// read reads registers, with or without a lock, until ctx ends.
func (c *client) read(ctx context.Context) {
	for pause(ctx, c.between(10*time.Millisecond, 60*time.Millisecond)) {
		c.readOnce(ctx)
	}
}

func (c *client) readOnce(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	op, key := c.nextOp(), c.anyKey()
	c.tell(history.Event{Kind: history.ReadBegin, Op: op, Key: key})
	e := history.Event{Kind: history.ReadEnd, Op: op, Key: key, Outcome: history.OK}
	if err := c.pool.QueryRow(ctx, readSQL(key)).Scan(&e.Was, &e.Era); err != nil {
		e = history.Event{Kind: history.ReadEnd, Op: op, Key: key, Outcome: history.Failed, Err: brief(err)}
	}
	c.tell(e)
}
