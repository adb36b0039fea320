package migrations

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgadvisory/pgadvisory/advisory"
)

const (
	// pathSQL tells the search_path and its default in the session, and sets it.
	// Names without a schema then mean PostgreSQL's own, in goose's statements too:
	// objects of another role must not be run by the role that migrates.
	pathSQL = "SELECT s.setting, s.reset_val FROM pg_catalog.pg_settings s WHERE s.name OPERATOR(pg_catalog.=) 'search_path'; " +
		"SET search_path = pg_catalog, pg_temp"

	setPathSQL   = "SELECT pg_catalog.set_config('search_path', $1, false)"
	resetPathSQL = "RESET search_path"

	// restoreLimit bounds the statement that puts the search_path back.
	restoreLimit = 10 * time.Second
)

// connector lends the connections of a pool to database/sql, each with the
// search_path of pathSQL for as long as it is lent.
type connector struct{ driver.Connector }

func newConnector(pool *pgxpool.Pool) connector {
	return connector{stdlib.GetPoolConnector(pool)}
}

// Connect refuses a pooler: one that keeps no session would leave the lock behind,
// and the search_path to its other clients.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	lent, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	s := &session{Conn: lent.(*stdlib.Conn)}
	if err := s.begin(ctx); err != nil {
		return nil, errors.Join(err, s.Conn.Close())
	}
	return s, nil
}

// session is a connection that is lent.
type session struct {
	*stdlib.Conn
	path      string // to put back
	isDefault bool
}

func (s *session) pgConn() *pgconn.PgConn { return s.Conn.Conn().PgConn() }

func (s *session) begin(ctx context.Context) error {
	if err := refusePooler(ctx, s.pgConn()); err != nil {
		return err
	}
	results, err := s.pgConn().Exec(ctx, pathSQL).ReadAll()
	if err != nil {
		// The setting may have been made all the same.
		return errors.Join(fmt.Errorf("set the search_path: %w", err), closeConn(ctx, s.Conn.Conn()))
	}
	row := results[0].Rows[0]
	s.path, s.isDefault = string(row[0]), string(row[0]) == string(row[1])
	return nil
}

// Close puts the search_path back and returns the connection to its pool. A
// connection on which that fails is closed.
func (s *session) Close() error {
	if s.pgConn().TxStatus() == 'I' && !s.pgConn().IsClosed() {
		ctx, cancel := context.WithTimeout(context.Background(), restoreLimit)
		defer cancel()
		if s.restore(ctx) != nil {
			_ = closeConn(ctx, s.Conn.Conn()) // the session ends, and its settings with it
		}
	}
	return s.Conn.Close()
}

func (s *session) restore(ctx context.Context) error {
	if s.isDefault {
		return s.pgConn().Exec(ctx, resetPathSQL).Close()
	}
	return s.pgConn().ExecParams(ctx, setPathSQL, [][]byte{[]byte(s.path)}, nil, nil, nil).Read().Err
}

// refusePooler asks without a prepared statement, which a pooler may not keep
// either.
func refusePooler(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, "SELECT pg_catalog.pg_backend_pid()").ReadAll()
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if pid := string(results[0].Rows[0][0]); pid != strconv.FormatUint(uint64(conn.PID()), 10) {
		return fmt.Errorf("%w: the session's backend is %s and the connection was told %d; connect to the server itself",
			advisory.ErrPooler, pid, conn.PID())
	}
	return nil
}

// closeConn ends the session, so that it does not return to the pool.
func closeConn(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return conn.Close(ctx)
}
