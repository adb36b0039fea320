//go:build unix

package worker

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// drawToken is the worker's part of [EarlyToken].
func drawToken(ctx context.Context, conn *pgx.Conn) (bool, error) {
	_, err := conn.Exec(ctx, `SELECT set_config('faults.token', nextval('fencing.token')::text, false)`)
	return err == nil, err
}

// holdCarelessly locks as many a program does that has no library for it.
func (c *client) holdCarelessly(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	g := c.begin("careless", c.anyKey())
	g.ask()
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		g.refused(err)
		return
	}
	defer conn.Release()
	lock := advisory.Name(g.key).SQL()
	var token int64
	for token <= 0 {
		err := conn.QueryRow(ctx, `SELECT coalesce(CASE WHEN pg_try_advisory_lock(`+lock+`) THEN fencing.issue($1) END, 0)`, g.key).Scan(&token)
		if err != nil {
			g.refused(err)
			return
		}
		pause(ctx, 10*time.Millisecond)
	}
	g.held = true
	g.tell(history.Event{
		Kind: history.LockEnd, Op: g.op, Key: g.key, How: g.how, Outcome: history.OK,
		Token: token, PID: conn.Conn().PgConn().PID(),
	})
	g.writeCarelessly(ctx, token)
	g.unlocking()
	// Any connection of the pool will do, and whatever it says.
	_, _ = c.pool.Exec(ctx, `SELECT pg_advisory_unlock(`+lock+`)`)
	g.ended(nil)
}

func (g *grant) writeCarelessly(ctx context.Context, token int64) {
	w := &write{grant: g, op: g.nextOp(), token: token}
	w.begin(pgx.TxOptions{}, false)
	w.end(pgx.BeginFunc(ctx, g.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT fencing.stamp($1, $2)`, g.key, token); err != nil {
			return err
		}
		return w.inTx(ctx)(tx)
	}))
}
