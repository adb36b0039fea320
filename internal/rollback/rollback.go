// Package rollback ends a transaction that pgx has left open.
package rollback

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Run rolls back the transaction of conn, if there is one. A BEGIN of several statements
// that failed half way leaves one, which pgx does not end. Run closes the connection if
// it can't roll back within limit. It ignores the end of ctx.
func Run(ctx context.Context, conn *pgx.Conn, limit time.Duration) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
		_ = conn.Close(ctx) // the session ends either way
	}
}
