package doctor

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// role looks at what ls and kill need. Locks need no privilege.
func role(ctx context.Context, r *Report, db pgx.Tx) error {
	var name string
	var reads, signals bool
	err := db.QueryRow(ctx, `SELECT current_user, pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'),
		pg_catalog.pg_has_role('pg_signal_backend', 'USAGE')`).Scan(&name, &reads, &signals)
	if err != nil {
		return err
	}
	quoted := identifier(name)
	if reads {
		r.ok("ls shows all of every session")
	} else {
		r.note("GRANT pg_read_all_stats TO "+quoted, "ls shows no times and no client of other roles' sessions")
	}
	if signals {
		r.ok("kill can terminate every session but a superuser's")
	} else {
		r.note("GRANT pg_signal_backend TO "+quoted, "kill can terminate sessions of the role's own only")
	}
	return nil
}
