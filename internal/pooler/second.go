package pooler

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// Dial makes connections as config says, for [Probe].
func Dial(config *pgconn.Config) func(context.Context) (*pgconn.PgConn, error) {
	config = config.Copy()
	// One that sends cancel requests would take its time.
	config.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
		return &pgconn.DeadlineContextWatcherHandler{Conn: conn.Conn()}
	}
	return func(ctx context.Context) (*pgconn.PgConn, error) { return pgconn.ConnectConfig(ctx, config) }
}

// second is a connection of the probe's own, of which nothing is left when it is
// closed.
type second struct {
	conn   *pgconn.PgConn
	failed bool
}

func open(ctx context.Context, dial func(context.Context) (*pgconn.PgConn, error), limit time.Duration) (*second, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := dial(ctx)
	if err != nil {
		return nil, err
	}
	// A deadline of the socket and not a context: when a context ends, pgx says
	// goodbye in the background for up to 15 s.
	deadline, _ := ctx.Deadline()
	if err := conn.Conn().SetDeadline(deadline); err != nil {
		_ = conn.Conn().Close()
		return nil, err
	}
	return &second{conn: conn}, nil
}

func (s *second) ask(sql string) ([]string, error) {
	row, err := Ask(context.Background(), s.conn, sql)
	s.failed = s.failed || err != nil
	return row, err
}

// close leaves no transaction open, for which a pooler would close the backend,
// and says goodbye if the connection is in order.
func (s *second) close() {
	if !s.failed && s.conn.TxStatus() != 'I' {
		_, _ = s.ask("ROLLBACK")
	}
	if s.failed {
		_ = s.conn.Conn().Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = s.conn.Close(ctx)
}
