package advisory

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// acquaintance is what is known of a session since it was first met. It is kept
// with the connection, so that it is asked for once.
type acquaintance struct {
	pid   uint32 // of the server's backend
	major int
	linux bool
}

// acquaintanceKey is the place in the data that pgx keeps with a connection.
const acquaintanceKey = "github.com/pgadvisory/pgadvisory/advisory"

// oldestServer is the first major version that is supported.
const oldestServer = 13

// meetSQL tells what the connection leads to.
const meetSQL = "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), pg_catalog.version()"

// meet returns what is known of the session, or the reason for which no lock
// can be held on it. It costs a round trip (two behind a pooler) for a
// connection that is new, and none later.
func (l *Locker) meet(ctx context.Context, hold *connhold.Hold) (*acquaintance, error) {
	if hold.ParameterStatus("in_hot_standby") == "on" {
		return nil, errStandby
	}
	if known := acquaintanceOf(hold); known != nil {
		return known, nil
	}
	var known *acquaintance
	err := hold.Run(ctx, l.config.HeartbeatTimeout, func(ctx context.Context, conn *pgx.Conn) (err error) {
		known, err = l.firstMeet(ctx, conn)
		return err
	})
	if err != nil {
		return nil, err
	}
	hold.Data()[acquaintanceKey] = known
	return known, nil
}

// acquaintanceOf returns nil for a session that was not met.
func acquaintanceOf(hold *connhold.Hold) *acquaintance {
	known, _ := hold.Data()[acquaintanceKey].(*acquaintance)
	return known
}

// isRefusal reports whether err is about what the connection leads to and not
// about its state.
func isRefusal(err error) bool {
	return errors.Is(err, ErrPooler) || errors.Is(err, ErrStandby) || errors.Is(err, ErrUnsupportedServer)
}

func (l *Locker) firstMeet(ctx context.Context, conn *pgx.Conn) (*acquaintance, error) {
	if engine := stubEngine(conn.PgConn()); engine != "" {
		return nil, unsupported(engine)
	}
	var pid int32
	var recovering bool
	var version string
	if err := conn.QueryRow(ctx, meetSQL).Scan(&pid, &recovering, &version); err != nil {
		return nil, err
	}
	known := &acquaintance{pid: uint32(pid), linux: strings.Contains(version, "linux")}
	switch n, _ := fmt.Sscanf(version, "PostgreSQL %d", &known.major); {
	case n != 1, known.major < oldestServer:
		return nil, unsupported(version)
	case recovering:
		return nil, errStandby
	case known.pid == conn.PgConn().PID():
		return known, nil
	case !l.config.SessionPooler:
		return nil, fmt.Errorf("%w: the session's backend is %d and the connection was told %d; connect to the server itself, "+
			"or set Config.SessionPooler if the pooler is in session mode", ErrPooler, known.pid, conn.PgConn().PID())
	}
	return known, confirmSession(ctx, conn, known.pid)
}

// confirmSession asks a second time behind a pooler: one that lends a backend
// for a transaction may lend another one now.
func confirmSession(ctx context.Context, conn *pgx.Conn, pid uint32) error {
	var again int32
	if err := conn.QueryRow(ctx, "SELECT pg_catalog.pg_backend_pid()").Scan(&again); err != nil {
		return err
	}
	if uint32(again) != pid {
		return fmt.Errorf("%w: one session's statements ran on the backends %d and %d; "+
			"the pooler must be in session mode", ErrPooler, pid, uint32(again))
	}
	return nil
}

// stubEngine names an engine that speaks PostgreSQL's protocol and whose
// advisory locks lock nothing.
func stubEngine(conn *pgconn.PgConn) string {
	if v := conn.ParameterStatus("crdb_version"); v != "" {
		return v
	}
	return ""
}

func unsupported(engine string) error {
	return fmt.Errorf("%w: %s; advisory locks that can be relied on need PostgreSQL %d or later",
		ErrUnsupportedServer, engine, oldestServer)
}

var errStandby = fmt.Errorf("%w: its locks exclude nobody on the primary; connect to the primary, "+
	"for example with target_session_attrs=read-write", ErrStandby)
