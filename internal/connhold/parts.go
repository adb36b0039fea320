package connhold

import (
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// parts are what the holds of one connection use one after the other, and need
// not make anew each time.
type parts struct {
	question     question
	bind         pgproto3.Bind
	interruption *interruption // nil when the last one may still be on its way
	unbegun      *watch        // nil when the last one began
}

// partsKey is the place in the data that pgx keeps with a connection.
const partsKey = "github.com/pgadvisory/pgadvisory/internal/connhold"

func partsOf(conn *pgconn.PgConn) *parts {
	p, ok := conn.CustomData()[partsKey].(*parts)
	if !ok {
		p = new(parts)
		conn.CustomData()[partsKey] = p
	}
	return p
}
