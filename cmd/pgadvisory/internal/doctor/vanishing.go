package doctor

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// vanishing looks at whether the server notices that a holder is gone, with its
// machine or its network. A holder that crashes closes its connection.
func vanishing(ctx context.Context, r *Report, db pgx.Tx, w *route) error {
	var linux, checks bool
	err := db.QueryRow(ctx, `SELECT pg_catalog.version() OPERATOR(pg_catalog.~~) '%linux%',
		pg_catalog.current_setting('server_version_num')::pg_catalog.int4 OPERATOR(pg_catalog.>=) 140000`).Scan(&linux, &checks)
	const watched = "The server's keepalives watch what is in between and not the holder. A holder that vanishes with its machine or network " +
		"keeps the lock until the connection from there is closed"
	switch {
	case err != nil:
		return err
	case w.isPooled():
		r.note("have the pooler watch its clients, PgBouncer for example with tcp_keepidle, tcp_keepintvl and tcp_keepcnt, "+
			"and free what a client has left when it takes a session back; see docs/poolers.md",
			"a pooler or a proxy is between here and the server. %s", watched)
	case w.isRelayed():
		r.note("have the proxy watch its clients, HAProxy for example with option clitcpka, clitcpka-idle, clitcpka-intvl and clitcpka-cnt; "+
			"see docs/poolers.md. If it is the network that translates addresses, there is nothing to do",
			"the connection has another port at the server (%s) than here (%s): a TCP proxy is in between, or the network translates addresses. %s",
			w.seenAt(), w.here, watched)
	case w.isUnixSocket():
		r.ok("the connection is a Unix socket: the server sees at once when a holder ends")
	case linux && checks:
		r.ok("a holder that vanishes with its machine or its network loses the lock after 30 s")
	default:
		r.note("use PostgreSQL 14 or later on Linux, if that matters",
			"a holder that vanishes with its machine or its network loses the lock after 30 s only while its session idles")
	}
	return nil
}
