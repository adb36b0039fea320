package advisory

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// Slice is how long one wait on the server lasts.
const Slice = slice

// ExecOnSession runs SQL on the session that holds the lock, as nothing outside
// of this package can.
func ExecOnSession(k *Lock, sql string) error {
	if loss := k.hold.Unwatch(time.Second); loss != nil {
		return loss.Cause
	}
	err := k.hold.Run(context.Background(), time.Minute, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.PgConn().Exec(ctx, sql).Close()
	})
	k.hold.Watch(connhold.Limits{Heartbeat: k.locker.config.Heartbeat, Timeout: k.locker.config.HeartbeatTimeout}, k.lose)
	return err
}

// Waiting counts the calls that wait in the Locker's line for key.
func Waiting(l *Locker, key Key) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ln := l.lines[key.tag()]; ln != nil {
		return len(ln.waiters)
	}
	return 0
}

// OnSession runs fn with the connection that holds the lock.
func OnSession(k *Lock, fn func(*pgx.Conn)) error {
	if loss := k.hold.Unwatch(time.Second); loss != nil {
		return loss.Cause
	}
	err := k.hold.Run(context.Background(), time.Minute, func(_ context.Context, conn *pgx.Conn) error {
		fn(conn)
		return nil
	})
	k.hold.Watch(connhold.Limits{Heartbeat: k.locker.config.Heartbeat, Timeout: k.locker.config.HeartbeatTimeout}, k.lose)
	return err
}
