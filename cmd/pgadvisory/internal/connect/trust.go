package connect

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ErrForeignFencing is returned by [CheckFencing].
var ErrForeignFencing = errors.New("the schema fencing belongs to a role that is no superuser, and this one is")

// ownerSQL tells who owns the schema fencing, and whether a call of its functions
// would lend that role the rights of a superuser.
const ownerSQL = `SELECT pg_get_userbyid(n.nspowner)::text, me.rolsuper AND NOT coalesce(o.rolsuper, false)
	FROM pg_roles me, pg_namespace n LEFT JOIN pg_roles o ON o.oid = n.nspowner
	WHERE n.nspname = 'fencing' AND me.rolname = current_user`

// FencingOwner returns the role that owns the schema fencing, or nothing if there
// is no such schema. foreign means that the current role should call none of its
// functions: it is a superuser, and the owner, who is none, may have replaced them. tx
// is one of [Read].
func FencingOwner(ctx context.Context, tx pgx.Tx) (owner string, foreign bool, err error) {
	err = tx.QueryRow(ctx, ownerSQL).Scan(&owner, &foreign)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", false, nil
	}
	return owner, foreign, err
}

// CheckFencing returns an error if the current role should not call the functions
// of the schema fencing.
func CheckFencing(ctx context.Context, pool *pgxpool.Pool) error {
	return Read(ctx, pool, func(tx pgx.Tx) error {
		owner, foreign, err := FencingOwner(ctx, tx)
		if err == nil && foreign {
			err = fmt.Errorf("%w: %s could have replaced what would run with a superuser's rights; connect as that role",
				ErrForeignFencing, pgx.Identifier{owner}.Sanitize())
		}
		return err
	})
}
