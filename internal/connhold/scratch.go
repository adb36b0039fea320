package connhold

import (
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// scratch is memory that the holds of one connection reuse, one after the other.
type scratch struct {
	request request
	bind    pgproto3.Bind
	guard   *deadlineGuard // nil while the last one may still fire
	spare   *watch         // nil when the last one began to read
}

// scratchKey is the place in the data that pgx keeps with a connection.
const scratchKey = "github.com/pgadvisory/pgadvisory/internal/connhold"

func scratchOf(conn *pgconn.PgConn) *scratch {
	p, ok := conn.CustomData()[scratchKey].(*scratch)
	if !ok {
		p = new(scratch)
		conn.CustomData()[scratchKey] = p
	}
	return p
}
