package lockproto

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/lockerr"
	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

// info is what the probe of a session has found. It is kept with the connection, so that
// one probe serves all later locks.
type info struct {
	pid   uint32 // of the server's backend
	major int
	linux bool

	current []string                 // currentSettings, but for what locks set
	texts   map[time.Duration]*texts // by VanishTimeout
}

// infoKey is the place in the data that pgx keeps with a connection.
const infoKey = "github.com/pgadvisory/pgadvisory/advisory"

// oldestServer is the first major version that is supported.
const oldestServer = 13

// probeSQL tells what the connection leads to, and how the server's settings are.
var probeSQL = pooler.Unbalanced + "SELECT pg_catalog.pg_backend_pid(), pg_catalog.pg_is_in_recovery(), pg_catalog.version(), " + currentSettings()

// infoOf returns nil for a session that was not probed.
func infoOf(hold *connhold.Hold) *info {
	known, _ := hold.Data()[infoKey].(*info)
	return known
}

// freshInfoOf is infoOf, and nil for a session that began on a standby: it learns of a
// promotion with the next answer only.
func freshInfoOf(hold *connhold.Hold) *info {
	if hold.ParameterStatus("in_hot_standby") == "on" {
		return nil
	}
	return infoOf(hold)
}

// Invalidate has the session probed again before it is asked for locks.
func Invalidate(hold *connhold.Hold) { delete(hold.Data(), infoKey) }

// IsProbed reports whether the session is known and set up.
func (s *Session) IsProbed() bool { return s.info != nil }

// Probe finds out what the session is, or the reason why no lock can be held on it, and
// sets it up. It takes two round trips for a new connection, and more behind a pooler, for
// [Config.CheckPooler].
func (s *Session) Probe(ctx context.Context) error {
	known := freshInfoOf(s.hold)
	if known == nil {
		err := s.hold.Run(ctx, s.config.AnswerTimeout, func(ctx context.Context, conn *pgx.Conn) (err error) {
			known, err = probe(ctx, conn)
			return err
		})
		if err == nil && known.pid != s.hold.PID() {
			err = s.config.CheckPooler(ctx, s.hold, known.pid)
		}
		if err != nil {
			return err
		}
	}
	if err := s.setUp(ctx, known); err != nil {
		return err
	}
	s.hold.Data()[infoKey] = known
	s.use(known)
	return nil
}

// setUp sets what is set once for the connection, for this Config.
func (s *Session) setUp(ctx context.Context, known *info) error {
	vanishTimeout := s.config.VanishTimeout
	once, each := split(wantedSettings(known, vanishTimeout), s.config.Owned)
	var answer []string
	err := s.hold.Run(ctx, s.config.AnswerTimeout, func(ctx context.Context, conn *pgx.Conn) (err error) {
		answer, err = pooler.Ask(ctx, conn.PgConn(), setOnceSQL(once))
		return err
	})
	if err != nil {
		return err
	}
	if len(once) > 0 { // what another Locker on the pool reckons with is not so any more
		if err := known.setOnce(once, strings.Join(answer, "")); err != nil {
			return err
		}
		clear(known.texts)
	}
	known.texts[vanishTimeout] = newTexts(known, vanishTimeout, each)
	return nil
}

func probe(ctx context.Context, conn *pgx.Conn) (*info, error) {
	if engine := stubEngine(conn.PgConn()); engine != "" {
		return nil, unsupported(engine)
	}
	sql := probeSQL
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
	known := &info{linux: strings.Contains(version, "linux")}
	switch n, _ := fmt.Sscanf(version, "PostgreSQL %d", &known.major); {
	case n != 1, known.major < oldestServer:
		return nil, unsupported(version)
	case recovering:
		return nil, errStandby
	}
	if _, err := fmt.Sscan(pid, &known.pid); err != nil {
		return nil, fmt.Errorf("the server's answer: %w", err)
	}
	known.current, known.texts = make([]string, len(allSettings)), make(map[time.Duration]*texts)
	copy(known.current, answer[3:])
	return known, nil
}

// stubEngine names an engine that speaks PostgreSQL's protocol and whose advisory locks
// are no-ops.
func stubEngine(conn *pgconn.PgConn) string { return conn.ParameterStatus("crdb_version") }

func unsupported(engine string) error {
	return fmt.Errorf("%w: %s; advisory locks that can be relied on need PostgreSQL %d or later",
		lockerr.ErrUnsupportedServer, engine, oldestServer)
}

var errStandby = fmt.Errorf("%w: its locks exclude nobody on the primary; connect to the primary, "+
	"for example with target_session_attrs=read-write", lockerr.ErrStandby)
