package lockproto

import "github.com/pgadvisory/pgadvisory/internal/lockid"

// XactSQL calls one of the server's lock functions for a lock, in a transaction of the
// caller's.
func XactSQL(function string, id lockid.ID) (sql string, args []any) {
	args = []any{id.Number}
	if id.IsPair() {
		args = []any{id.Class(), id.Object()}
	}
	return "SELECT pg_catalog." + function + "(" + placeholders(id.IsPair()) + ")", args
}
