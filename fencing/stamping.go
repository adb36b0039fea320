package fencing

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// SELECT fencing.stamp(...) costs a short transaction about as much as its own insert,
// because the server parses, analyzes and plans that text each time. So InTx calls
// the function once on each connection, which says whether it is there and may be
// called. From then on a prepared statement does what the function does. It is
// executed from SQL, in one round trip with BEGIN.
//
// SET LOCAL would cost as little, but pg_stat_statements would get an entry for each
// token.

// stamping is how transactions are stamped on a connection.
type stamping int

const (
	unknown   stamping = iota // the function has not been called
	called                    // it was, and the statement is worth a try
	prepared                  // the statement is there
	unfitting                 // statements are not to be prepared, or vanish
)

// stampingKey is the place in the data that pgx keeps with a connection.
const stampingKey = "github.com/pgadvisory/pgadvisory/fencing"

func stampingOf(conn *pgx.Conn) *stamping {
	data := conn.PgConn().CustomData()
	s, ok := data[stampingKey].(*stamping)
	if !ok {
		s = new(stamping)
		data[stampingKey] = s
	}
	return s
}

// prepare prepares the statement where it is worth a try: it is not where pgx
// prepares none for queries either. An error is one of ctx or of the connection.
func (s *stamping) prepare(ctx context.Context, conn *pgx.Conn) error {
	if *s != called || conn.PgConn().TxStatus() != 'I' {
		return nil
	}
	if conn.Config().DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		*s = unfitting
		return nil
	}
	_, err := conn.Prepare(ctx, stampName, stampText)
	var pgErr *pgconn.PgError
	switch {
	case err == nil:
		*s = prepared
	case !errors.As(err, &pgErr) || conn.IsClosed():
		return err
	case !isPassing(pgErr.Code):
		*s = unfitting
	default: // another time
	}
	return nil
}

// isPassing reports whether an error may be none the next time: the server was short
// of something, or somebody intervened.
func isPassing(code string) bool {
	return slices.ContainsFunc([]string{"53", "55", "57"}, func(class string) bool { return strings.HasPrefix(code, class) })
}

// isMissing reports whether the server does not have the statement: somebody has
// deallocated it, or a pooler calls it by another name.
func isMissing(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && pgErr.Code == "26000"
}
