package pooler

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
)

// Unbalanced begins a query that is to run where the locks are. Pgpool-II sends a
// query that only reads to any of its servers, unless it begins with a comment.
const Unbalanced = "/*NO LOAD BALANCE*/ "

// BackendPIDSQL asks for the process ID of the backend.
const BackendPIDSQL = Unbalanced + "SELECT pg_catalog.pg_backend_pid()"

// backendSQL asks for a backend. When the server started is told to the
// microsecond, in a form that no setting of the session changes.
const backendSQL = BackendPIDSQL + ", (pg_catalog.date_part('epoch', pg_catalog.pg_postmaster_start_time())" +
	" OPERATOR(pg_catalog.*) 1000000)::pg_catalog.int8"

// PinSQL has RDS Proxy keep the session until its end, as its documentation says
// of every SET. The setting means nothing to the server.
const PinSQL = "SET pgadvisory.session = 'kept'; "

// Ask returns the one row of the last of the statements in sql, in text, and nil
// if that has none. A prepared statement would be left on a backend that a pooler
// has only lent, or meet one of another client there.
func Ask(ctx context.Context, conn *pgconn.PgConn, sql string) ([]string, error) {
	results, err := conn.Exec(ctx, sql).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(results) == 0 || len(results[len(results)-1].Rows) > 1 {
		return nil, fmt.Errorf("the server answered with %d results", len(results))
	}
	var row []string
	for _, values := range results[len(results)-1].Rows {
		for _, text := range values {
			row = append(row, string(text))
		}
	}
	return row, nil
}
