package migrations

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// ErrOtherOwner is returned by [Up] and [Down] if the schema fencing, or an object
// in it, belongs to another role than the current one. Test with errors.Is.
var ErrOtherOwner = errors.New("the schema fencing belongs to another role")

// versionSQL reads the function that tells the version. Calling it would run
// whatever the owner of the schema has put there, with the rights of the caller,
// and would need privileges.
const versionSQL = `SELECT p.prosrc FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
	WHERE n.nspname OPERATOR(pg_catalog.=) 'fencing' AND p.proname OPERATOR(pg_catalog.=) 'version' AND p.pronargs OPERATOR(pg_catalog.=) 0`

var versionText = regexp.MustCompile(`^SELECT ([0-9]+)(::bigint)?$`)

// stateSQL reads the catalogs only, so that it needs no privilege.
const stateSQL = `SELECT current_user::pg_catalog.text, pg_catalog.pg_get_userbyid(n.nspowner)::pg_catalog.text,
	EXISTS (SELECT FROM pg_catalog.pg_class c WHERE c.relnamespace OPERATOR(pg_catalog.=) n.oid AND c.relname OPERATOR(pg_catalog.=) 'migration'),
	coalesce((SELECT pg_catalog.min(o.name) FROM (
		SELECT c.relname::pg_catalog.text, c.relowner FROM pg_catalog.pg_class c WHERE c.relnamespace OPERATOR(pg_catalog.=) n.oid
		UNION ALL
		SELECT p.proname::pg_catalog.text, p.proowner FROM pg_catalog.pg_proc p WHERE p.pronamespace OPERATOR(pg_catalog.=) n.oid
	) o (name, owner) WHERE o.owner OPERATOR(pg_catalog.<>) n.nspowner), '')
	FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.=) 'fencing'`

// state is what there is of fencing in a database.
type state struct {
	exists      bool // the schema
	role, owner string
	recorded    bool   // by a run of this package
	foreign     string // an object of another owner than the schema's, if there is one
	version     int64  // 0 where fencing is not installed
}

func stateOf(ctx context.Context, db Querier) (s state, err error) {
	err = db.QueryRow(ctx, stateSQL).Scan(&s.role, &s.owner, &s.recorded, &s.foreign)
	if errors.Is(err, pgx.ErrNoRows) {
		return state{}, nil
	}
	if err != nil {
		return state{}, err
	}
	s.exists = true
	s.version, err = versionOf(ctx, db)
	return s, err
}

func versionOf(ctx context.Context, db Querier) (int64, error) {
	var text string
	err := db.QueryRow(ctx, versionSQL).Scan(&text)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	match := versionText.FindStringSubmatch(text)
	if match == nil {
		return 0, errors.New("the function fencing.version() is not that of a migration")
	}
	return strconv.ParseInt(match[1], 10, 64)
}

// refusal says why the current role must not migrate here, or nothing.
func (s state) refusal() error {
	switch {
	case !s.exists:
		return nil
	case s.owner != s.role:
		return fmt.Errorf("%w: it belongs to %s, and the current role is %s; run this as %[2]s",
			ErrOtherOwner, pgx.Identifier{s.owner}.Sanitize(), pgx.Identifier{s.role}.Sanitize())
	case s.foreign != "":
		return fmt.Errorf("%w, in part: %s in it does not belong to %s", ErrOtherOwner,
			pgx.Identifier{s.foreign}.Sanitize(), pgx.Identifier{s.owner}.Sanitize())
	case s.version > 0 && !s.recorded:
		return errors.New("fencing was installed by another tool, which has its own record of that: go on with that tool")
	default:
		return nil
	}
}
