package connhold

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Cull asks all idle connections of a pool at once for a sign of life, and closes those
// that give none within limit. The pool counts these out at once, where one that it
// closes by itself counts until its goodbye is over, for 15 s on a dead link. The pool
// has no idle connection to give out meanwhile.
func Cull(ctx context.Context, pool *pgxpool.Pool, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit) // for the pool's hooks
	defer cancel()
	var asked sync.WaitGroup
	for _, conn := range pool.AcquireAllIdle(ctx) {
		h := &Hold{pin: conn, timers: new(Timers), scratch: scratchOf(conn.Conn().PgConn())}
		if h.socket().SetDeadline(time.Time{}) != nil { // it is closed, or can't be asked
			h.Release()
			continue
		}
		asked.Go(func() {
			_ = h.Run(ctx, limit, func(ctx context.Context, conn *pgx.Conn) error { return conn.Ping(ctx) })
			h.Release() // which destroys it after an error
		})
	}
	asked.Wait()
}
