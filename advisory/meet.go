package advisory

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
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
var meetSQL = pooler.Unbalanced + "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), pg_catalog.version(), " + currentSettings()

// meet returns what is known of the session, or the reason for which no lock
// can be held on it. It costs a round trip for a connection that is new, behind a
// pooler more and a second connection for a moment (see checkPooler), and none
// later.
func (l *Locker) meet(ctx context.Context, hold *connhold.Hold) (*acquaintance, error) {
	if known := knownOf(hold); known != nil {
		return known, nil
	}
	var known *acquaintance
	err := hold.Run(ctx, l.config.HeartbeatTimeout, func(ctx context.Context, conn *pgx.Conn) (err error) {
		known, err = l.firstMeet(ctx, conn)
		return err
	})
	if err == nil && known.pid != hold.PID() {
		err = l.checkPooler(ctx, hold, known.pid)
	}
	if err == nil && l.owned {
		err = l.own(ctx, hold, known)
	}
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
	sql := meetSQL
	if conn.PgConn().PID() == 0 {
		sql = pooler.PinSQL + sql
	}
	answer, err := pooler.Ask(ctx, conn.PgConn(), sql)
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
	return known, nil
}

// own applies the settings for good.
func (l *Locker) own(ctx context.Context, hold *connhold.Hold, known *acquaintance) error {
	known.own = true
	return hold.Run(ctx, l.config.HeartbeatTimeout, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := pooler.Ask(ctx, conn.PgConn(), "SELECT "+settingsFor(known, l.config.VanishTimeout).apply())
		return err
	})
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
