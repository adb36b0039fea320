package connhold

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// dropNotifications empties pgx's buffer of notifications, which nobody reads
// while the connection is pinned and which grows with each NOTIFY. Where the
// pool's owner has set OnNotification, that got them and nothing is buffered.
func dropNotifications(conn *pgx.Conn) {
	for {
		// With a context that has ended it reads the buffer and not the socket.
		n, _ := conn.WaitForNotification(endedContext)
		if n == nil {
			return
		}
		*n = pgconn.Notification{} // the buffer's array still points to it
	}
}

var endedContext = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()
