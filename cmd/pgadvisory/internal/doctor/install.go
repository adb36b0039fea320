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

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/connect"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

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

// schemaSQL looks at what the role may do in the schema, without calling anything of
// it.
const schemaSQL = `SELECT current_user::text, pg_get_userbyid(n.nspowner)::text, r.rolsuper, current_setting('default_transaction_read_only')::boolean,
	CASE WHEN has_schema_privilege(n.oid, 'USAGE') THEN coalesce(has_function_privilege(to_regprocedure('fencing.issue(text)'), 'EXECUTE'), false)
		AND coalesce(has_function_privilege(to_regprocedure('fencing.stamp(text, bigint, interval)'), 'EXECUTE'), false)
		AND coalesce(has_table_privilege(to_regclass('fencing.resource'), 'SELECT'), false) ELSE false END
	FROM pg_namespace n, pg_roles r WHERE n.nspname = 'fencing' AND r.rolname = current_user`

// schema looks at fencing: first whether it is installed, in which version, and then
// whether the role may use it.
func schema(ctx context.Context, r *Report, db pgx.Tx) error {
	newest, err := NewestMigration()
	if err != nil {
		return err
	}
	var name, owner string
	var super, readOnly, granted bool
	err = db.QueryRow(ctx, schemaSQL).Scan(&name, &owner, &super, &readOnly, &granted)
	if errors.Is(err, pgx.ErrNoRows) {
		r.note("pgadvisory migrate up, as the role that is to own it", "fencing is not installed; locks don't need it")
		return nil
	}
	if err != nil {
		return err
	}
	version, err := migrations.Version(ctx, db)
	migrate := "as " + shellWord(owner) + ": pgadvisory migrate up"
	switch {
	case err != nil:
		r.problem("find out what the schema fencing is, and drop or rename it", "the schema fencing is not of this program: %v", err)
		return nil
	case version == 0:
		r.problem(migrate+"; or drop the schema", "fencing is not installed, and role %s has a schema of that name", shellWord(owner))
		return nil
	case version < newest:
		r.problem(migrate, "fencing is at version %d, and this program needs %d", version, newest)
	case version > newest:
		r.note("use the pgadvisory that has installed it", "fencing is at version %d, and this program knows %d", version, newest)
	default:
		r.ok("fencing is at version %d, the newest", version)
	}
	if granted {
		r.ok("the role may draw tokens and stamp with them")
	} else {
		r.problem(fmt.Sprintf("as %s: pgadvisory grant %s", shellWord(owner), shellArgument(name)), "fencing is installed, and the role %s may not use it", shellWord(name))
	}
	if readOnly {
		r.problem("ALTER ROLE "+identifier(name)+" RESET default_transaction_read_only, or wherever it is set",
			"default_transaction_read_only is on: no token can be drawn")
	}
	if super {
		r.note("let applications connect as a role that owns no guarded table", "%s is a superuser, who can remove guards", shellWord(name))
	}
	return nil
}

// sourceSQL tells whether the installed version can say where the epoch comes from.
const sourceSQL = `SELECT EXISTS (SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
	WHERE n.nspname = 'fencing' AND p.proname = 'epoch_source' AND p.pronargs = 0
	AND has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE'))`

// epoch says where the epoch of tokens comes from.
func epoch(ctx context.Context, r *Report, db pgx.Tx) error {
	owner, foreign, err := connect.FencingOwner(ctx, db)
	if err != nil || owner == "" || foreign {
		return err
	}
	var known bool
	var source string
	err = db.QueryRow(ctx, sourceSQL).Scan(&known)
	if err == nil && known {
		err = db.QueryRow(ctx, "SELECT fencing.epoch_source()").Scan(&source)
	}
	switch {
	case err != nil || !known:
		return err
	case source == "timeline":
		r.ok("the epoch of tokens is the server's timeline: a promotion makes all earlier tokens stale")
	case source == "constant":
		r.note("after a failover that lost transactions, as "+shellWord(owner)+": SELECT fencing.rebase()",
			"the epoch of tokens is constant, since this server does not tell its timeline: a promotion alone makes no token stale")
	default:
		r.ok("the epoch of tokens comes from: %s", source)
	}
	return nil
}

// guards looks whether those of the database are whole.
func guards(ctx context.Context, r *Report, db pgx.Tx) error {
	owner, foreign, err := connect.FencingOwner(ctx, db)
	if err != nil {
		return err
	}
	if foreign {
		r.note("as "+shellWord(owner)+": pgadvisory doctor",
			"fencing belongs to %s, who is no superuser: its functions are not called with a superuser's rights, and the guards were not looked at",
			shellWord(owner))
		return nil
	}
	report, err := fencing.Verify(ctx, db)
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
