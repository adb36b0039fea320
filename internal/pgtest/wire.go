package pgtest

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Wire counts what the connections of a pool send to the server. Who waits for the
// answer each time makes as many round trips. It can be used by many at once.
type Wire struct {
	sent  atomic.Int64
	delay atomic.Int64
}

// On configures a pool.
func (w *Wire) On(c *pgxpool.Config) {
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &wiredConn{Conn: conn, wire: w}, err
	}
}

// Sent is how often something was sent.
func (w *Wire) Sent() int64 { return w.sent.Load() }

// Delay has everything sent later from now on.
func (w *Wire) Delay(d time.Duration) { w.delay.Store(int64(d)) }

type wiredConn struct {
	net.Conn
	wire *Wire
}

func (c *wiredConn) Write(b []byte) (int, error) {
	c.wire.sent.Add(1)
	if d := c.wire.delay.Load(); d > 0 {
		<-time.After(time.Duration(d))
	}
	return c.Conn.Write(b)
}
