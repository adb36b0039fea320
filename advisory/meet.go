package advisory

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

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

	before []string // currentSettings when it was met
	own    bool     // of a pool of the Locker's own: its settings stay as they should be
	ways   map[time.Duration]*way
}

// way is that of a Locker with the VanishTimeout.
func (a *acquaintance) way(vanishTimeout time.Duration) *way {
	w, ok := a.ways[vanishTimeout]
	if !ok {
		w = newWay(a, vanishTimeout)
		a.ways[vanishTimeout] = w
	}
	return w
}

// acquaintanceKey is the place in the data that pgx keeps with a connection.
const acquaintanceKey = "github.com/pgadvisory/pgadvisory/advisory"

// oldestServer is the first major version that is supported.
const oldestServer = 13

// meetSQL tells what the connection leads to, and how the settings are that the
// server has.
var meetSQL = "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), pg_catalog.version(), " + currentSettings()

// meet returns what is known of the session, or the reason for which no lock
// can be held on it. It costs a round trip (two behind a pooler) for a
// connection that is new, and none later.
func (l *Locker) meet(ctx context.Context, hold *connhold.Hold) (*acquaintance, error) {
	if known := knownOf(hold); known != nil {
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

// forget has the session met anew.
func forget(hold *connhold.Hold) { delete(hold.Data(), acquaintanceKey) }

// knownOf returns what is known of the session, or nil if it has to be asked. One
// that was opened on a standby learns of its promotion with the next answer only,
// so it is asked.
func knownOf(hold *connhold.Hold) *acquaintance {
	if hold.ParameterStatus("in_hot_standby") == "on" {
		return nil
	}
	return acquaintanceOf(hold)
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
	answer, err := askUnprepared(ctx, conn, meetSQL)
	if err != nil {
		return nil, err
	}
	if len(answer) < 3 {
		return nil, fmt.Errorf("the server answered with %d columns", len(answer))
	}
	pid, recovering, version := answer[0], answer[1] == "t", answer[2]
	known := &acquaintance{linux: strings.Contains(version, "linux")}
	switch n, _ := fmt.Sscanf(version, "PostgreSQL %d", &known.major); {
	case n != 1, known.major < oldestServer:
		return nil, unsupported(version)
	case recovering:
		return nil, errStandby
	}
	if _, err := fmt.Sscan(pid, &known.pid); err != nil {
		return nil, fmt.Errorf("the server's answer: %w", err)
	}
	known.before, known.ways = make([]string, len(allSettings)), make(map[time.Duration]*way)
	copy(known.before, answer[3:])
	if err := l.refusePooler(ctx, conn, known.pid); err != nil {
		return nil, err
	}
	if l.owned {
		known.own = true
		_, err = askUnprepared(ctx, conn, "SELECT "+settingsFor(known, l.config.VanishTimeout).apply())
	}
	return known, err
}

// refusePooler refuses a connection whose session is not the backend's, which
// has told its pid.
func (l *Locker) refusePooler(ctx context.Context, conn *pgx.Conn, pid uint32) error {
	switch {
	case pid == conn.PgConn().PID():
		return nil
	case !l.config.SessionPooler:
		return fmt.Errorf("%w: the session's backend is %d and the connection was told %d; connect to the server itself, "+
			"or set Config.SessionPooler if the pooler is in session mode", ErrPooler, pid, conn.PgConn().PID())
	}
	// One that lends a backend for a transaction may lend another one now.
	again, err := askUnprepared(ctx, conn, "SELECT pg_catalog.pg_backend_pid()")
	if err == nil && again[0] != strconv.FormatUint(uint64(pid), 10) {
		err = fmt.Errorf("%w: one session's statements ran on the backends %d and %s; "+
			"the pooler must be in session mode", ErrPooler, pid, again[0])
	}
	return err
}

// askUnprepared returns the one row of a query, in text. A prepared statement
// would be left on a backend that a pooler has only lent, or meet one of another
// client there.
func askUnprepared(ctx context.Context, conn *pgx.Conn, sql string) ([]string, error) {
	results, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) != 1 || len(results[0].Rows) != 1 {
		return nil, fmt.Errorf("the server answered with %d results", len(results))
	}
	answer := make([]string, len(results[0].Rows[0]))
	for i, text := range results[0].Rows[0] {
		answer[i] = string(text)
	}
	return answer, nil
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
