package cli

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/connect"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// calling is asking for subcommands that call functions of the schema fencing, which
// belong to its owner.
func (a *app) calling(do func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, args []string) error) func(*cobra.Command, []string) error {
	return a.asking(func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, args []string) error {
		err := connect.CheckFencing(ctx, pool)
		switch {
		case errors.Is(err, connect.ErrForeignFencing):
			return &failure{code: exitRefused, err: err}
		case err != nil:
			return err
		}
		return do(ctx, cmd, pool, args)
	})
}

// migrateError gives errors of the migrations their status. A pooler is refused
// whatever its mode: the flag that allows one elsewhere is no advice here.
func migrateError(err error) error {
	switch {
	case errors.Is(err, advisory.ErrPooler):
		return &failure{code: exitConfig, err: errors.New(err.Error() + "; migrate works with no pooler, --session-pooler or not")}
	case errors.Is(err, migrations.ErrOtherOwner):
		return &failure{code: exitRefused, err: err}
	default:
		return err
	}
}
