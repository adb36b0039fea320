package connhold

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// RollBack ends what a BEGIN of several statements has left that failed half way,
// which pgx leaves as it is. It closes the connection if it can't within limit,
// whatever has become of ctx.
func RollBack(ctx context.Context, conn *pgx.Conn, limit time.Duration) {
	if conn.IsClosed() || conn.PgConn().TxStatus() == 'I' {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	if _, err := conn.Exec(ctx, "ROLLBACK"); err != nil {
		_ = conn.Close(ctx) // the session ends either way
	}
}
