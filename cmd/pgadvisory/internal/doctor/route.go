package doctor

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/internal/pooler"
)

// probeLimit bounds the second connection of a probe.
const probeLimit = 5 * time.Second

// route is what lies between here and the server.
type route struct {
	told, backend uint32 // the process ID of the handshake, and that of the backend

	here   net.Addr // this end of the connection
	seen   int      // the port of the client that the server sees, 0 for a Unix socket
	kept   pooler.Verdict
	reason string // of the verdict
}

// routeSQL asks for what the server sees of its client.
const routeSQL = pooler.BackendPIDSQL + ", coalesce(pg_catalog.inet_client_port(), 0)"

// findRoute looks what lies between, and if that is a pooler, whether it keeps
// sessions.
func findRoute(ctx context.Context, pool *pgxpool.Pool) (*route, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	pgConn := conn.Conn().PgConn()
	w := &route{told: pgConn.PID(), here: pgConn.Conn().LocalAddr()}
	sql := routeSQL
	if w.told == 0 {
		sql = pooler.PinSQL + sql
	}
	row, err := pooler.Ask(ctx, pgConn, sql)
	if err != nil {
		return nil, err
	}
	if len(row) != 2 {
		return nil, fmt.Errorf("the server answered with %d columns", len(row))
	}
	backend, err := strconv.ParseUint(row[0], 10, 32)
	if err != nil {
		return nil, err
	}
	w.backend = uint32(backend)
	if w.seen, err = strconv.Atoi(row[1]); err != nil || !w.isPooled() {
		return w, err
	}
	finding, err := pooler.Probe(ctx, w.backend,
		func(sql string) ([]string, error) { return pooler.Ask(ctx, pgConn, sql) },
		pooler.Dial(&conn.Conn().Config().Config), probeLimit)
	w.kept, w.reason = finding.Verdict, finding.Evidence
	return w, err
}

// isPooled reports whether something between tells its own process IDs.
func (w *route) isPooled() bool { return w.told != w.backend }

// isUnixSocket reports whether it is one from here to the server.
func (w *route) isUnixSocket() bool { return w.here.Network() == "unix" && w.seen == 0 }

// isRelayed reports whether the server's connection is another one than that of
// this end. Address translation looks the same.
func (w *route) isRelayed() bool {
	here, ok := w.here.(*net.TCPAddr)
	return !w.isUnixSocket() && (!ok || here.Port != w.seen)
}

// seenAt is where the server sees its client.
func (w *route) seenAt() string {
	if w.seen == 0 {
		return "a Unix socket"
	}
	return strconv.Itoa(w.seen)
}

// refusal says why no lock can be held behind a pooler.
func (w *route) refusal(r *Report) {
	what := fmt.Sprintf("no lock can be held: no session behind the pooler: the backend is %d and the handshake told process ID %d: %s",
		w.backend, w.told, w.reason)
	if w.kept == pooler.Lent {
		r.problem("connect to the server itself, past the pooler; or to the pooler in session mode, with --session-pooler", "%s", what)
		return
	}
	r.problem("connect to the server itself, past the pooler; or, if that is in session mode, use --session-pooler", "%s. "+
		"Neon, Supavisor, PgDog, Pgpool-II and RDS Proxy tell another process ID, or none, even if they keep the session", what)
}

// allowance says what is known of a pooler that is allowed.
func (w *route) allowance(r *Report) {
	switch {
	case !w.isPooled():
		r.note("leave out --session-pooler", "a pooler is allowed, and there is none: the backend is the one of the handshake")
	case w.kept == pooler.Kept:
		r.note("connect to the server itself where you can", "a pooler is allowed, and it kept the session: %s. "+
			"If it lends backends later, a heartbeat finds that out at the next chance, or unlocking does", w.reason)
	default:
		r.note("make sure that the pooler is in session mode, and that it has a backend left",
			"a pooler is allowed, and whether it keeps sessions could not be found out: %s", w.reason)
	}
}
