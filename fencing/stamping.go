package fencing

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SELECT fencing.stamp(...) costs a short transaction about as much as its own insert,
// because the server parses, analyzes and plans that text each time. So InTx calls
// the function once on each connection, which says whether it is there and may be
// called, and what it makes of a MaxIdle. From then on a prepared statement sets the
// same. It is executed from SQL, in one round trip with BEGIN.
//
// Two SET LOCAL would cost as little, but pg_stat_statements would get an entry for
// each token.

// stamping is what is known of a connection on which a transaction has been stamped.
type stamping struct {
	// idle is, for a MaxIdle in milliseconds, what the session's limit is in a
	// stamped transaction, as the server writes it.
	idle      map[int64]string
	statement fitness
}

// fitness says whether a connection has the prepared statement.
type fitness int

const (
	untried fitness = iota
	prepared
	unfit // statements are not to be prepared there, or vanish
)

// stampingKey is the place in the data that pgx keeps with a connection.
const stampingKey = "github.com/pgadvisory/pgadvisory/fencing"

func stampingOf(conn *pgx.Conn) *stamping {
	data := conn.PgConn().CustomData()
	s, ok := data[stampingKey].(*stamping)
	if !ok {
		s = &stamping{idle: make(map[int64]string)}
		data[stampingKey] = s
	}
	return s
}

// The statement returns no row, which is the cheapest answer.
const (
	stampStatement = "pgadvisory_stamp"
	stampText      = "SELECT WHERE pg_catalog.set_config('fencing.stamps', $1, true) OPERATOR(pg_catalog.=) " +
		"pg_catalog.set_config('idle_in_transaction_session_timeout', $2, true)"
)

// isMissing reports whether the server does not have the statement: somebody has
// deallocated it, or a pooler calls it by another name.
func isMissing(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "26000"
}

// prepare reports whether the connection has the statement. It is not tried where
// pgx prepares none for queries either.
func (s *stamping) prepare(ctx context.Context, conn *pgx.Conn) bool {
	if s.statement != untried {
		return s.statement == prepared
	}
	if conn.Config().DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		s.statement = unfit
		return false
	}
	var pgErr *pgconn.PgError
	if _, err := conn.Prepare(ctx, stampStatement, stampText); err == nil {
		s.statement = prepared
	} else if errors.As(err, &pgErr) {
		s.statement = unfit
	} // else ctx or the connection has ended, and begin says so
	return s.statement == prepared
}

// note keeps the limit that is in force, which the function has set. It prepares no
// statement, which a pooler might not expect.
func (s *stamping) note(ctx context.Context, conn *pgx.Conn, maxIdle int64) error {
	results, err := conn.PgConn().Exec(ctx, "SELECT pg_catalog.current_setting('idle_in_transaction_session_timeout')").ReadAll()
	if err != nil {
		return err
	}
	s.idle[maxIdle] = string(results[0].Rows[0][0])
	return nil
}

// isPlain reports whether a text needs no escapes, in SQL and in JSON, whatever the
// session's settings are.
func isPlain(text string) bool {
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune(" -_./:", rune(c)) {
			return false
		}
	}
	return true
}

// literal is a text in SQL, spelled so that no setting of the session decides how it
// is read.
func literal(text string) string {
	if isPlain(text) {
		return "'" + text + "'"
	}
	return fmt.Sprintf("pg_catalog.convert_from(pg_catalog.decode('%x', 'hex'), 'UTF8')", text)
}
