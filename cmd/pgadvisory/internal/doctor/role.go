package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// role looks at what ls and kill need. Locks need no privilege.
func role(ctx context.Context, r *Report, pool *pgxpool.Pool) error {
	var name string
	var reads, signals bool
	err := pool.QueryRow(ctx, `SELECT current_user, pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'),
		pg_catalog.pg_has_role('pg_signal_backend', 'USAGE')`).Scan(&name, &reads, &signals)
	if err != nil {
		return err
	}
	quoted := pgx.Identifier{name}.Sanitize()
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

// NewestMigration is the version that this program brings.
func NewestMigration() (int64, error) {
	files, err := fs.Glob(migrations.FS, "*.sql")
	if err != nil {
		return 0, err
	}
	var newest int64
	for _, file := range files {
		digits, _, _ := strings.Cut(file, "_")
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("the migration %s: %w", file, err)
		}
		newest = max(newest, n)
	}
	if newest == 0 {
		return 0, errors.New("there are no migrations")
	}
	return newest, nil
}

// schema looks at fencing: its version, and whether the role can use it.
func schema(ctx context.Context, r *Report, pool *pgxpool.Pool) error {
	newest, err := NewestMigration()
	if err != nil {
		return err
	}
	var there, usable bool
	err = pool.QueryRow(ctx, `SELECT coalesce(bool_or(true), false), coalesce(bool_or(pg_catalog.has_schema_privilege(oid, 'USAGE')), false)
		FROM pg_catalog.pg_namespace WHERE nspname = 'fencing'`).Scan(&there, &usable)
	if err != nil {
		return err
	}
	if !there {
		r.note("pgadvisory migrate up, as the role that is to own it", "fencing is not installed; locks don't need it")
		return nil
	}
	return privileges(ctx, r, pool, usable, newest)
}

func privileges(ctx context.Context, r *Report, pool *pgxpool.Pool, usable bool, newest int64) error {
	var name, owner string
	var super, readOnly bool
	err := pool.QueryRow(ctx, `SELECT current_user, pg_catalog.pg_get_userbyid(n.nspowner), r.rolsuper,
			pg_catalog.current_setting('default_transaction_read_only')::boolean
		FROM pg_catalog.pg_namespace n, pg_catalog.pg_roles r WHERE n.nspname = 'fencing' AND r.rolname = current_user`).
		Scan(&name, &owner, &super, &readOnly)
	if err != nil {
		return err
	}
	granted := usable
	if usable {
		if err := pool.QueryRow(ctx, `SELECT
			coalesce(has_function_privilege(to_regprocedure('fencing.issue(text)'), 'EXECUTE'), false)
			AND coalesce(has_function_privilege(to_regprocedure('fencing.stamp(text, bigint, interval)'), 'EXECUTE'), false)
			AND coalesce(has_table_privilege(to_regclass('fencing.resource'), 'SELECT'), false)`).Scan(&granted); err != nil {
			return err
		}
	}
	if granted {
		r.ok("the role may draw tokens and stamp with them")
	} else {
		r.problem(fmt.Sprintf("as %s: pgadvisory grant %s", owner, name), "fencing is installed, and the role %s may not use it", name)
	}
	if readOnly {
		r.problem("ALTER ROLE "+pgx.Identifier{name}.Sanitize()+" RESET default_transaction_read_only, or wherever it is set",
			"default_transaction_read_only is on: no token can be drawn")
	}
	if super {
		r.note("let applications connect as a role that owns no guarded table", "%s is a superuser, who can remove guards", name)
	}
	if !usable {
		return nil
	}
	var readable bool
	if err := pool.QueryRow(ctx, `SELECT coalesce(has_table_privilege(to_regclass('fencing.migration'), 'SELECT'), false)`).Scan(&readable); err != nil {
		return err
	}
	if !readable {
		return nil // only the owner sees the version
	}
	version, err := migrations.Version(ctx, pool)
	switch {
	case err != nil:
		return err
	case version < newest:
		r.problem(fmt.Sprintf("as %s: pgadvisory migrate up", owner), "fencing is at version %d, and this program needs %d", version, newest)
	case version > newest:
		r.note("use the pgadvisory that has installed it", "fencing is at version %d, and this program knows %d", version, newest)
	default:
		r.ok("fencing is at version %d, the newest", version)
	}
	return nil
}

// guards looks whether those of the database are whole.
func guards(ctx context.Context, r *Report, pool *pgxpool.Pool) error {
	report, err := fencing.Verify(ctx, pool)
	switch {
	case errors.Is(err, fencing.ErrNotInstalled):
		return nil // schema has said so
	case err != nil:
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "42501" {
			r.note("run pgadvisory verify as the owner of the schema fencing", "the role may not look at the guards")
			return nil
		}
		return err
	}
	problems := report.Problems
	for _, table := range report.Tables {
		problems = append(problems, table.Problems...)
	}
	for _, p := range problems {
		r.problem(p.Fix, "%s", p.What)
	}
	if len(problems) == 0 {
		r.ok("all guards are whole; guarded tables: %d", len(report.Tables))
	}
	return nil
}
