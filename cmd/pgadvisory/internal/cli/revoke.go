package cli

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/fencing"
)

func (a *app) revoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke ROLE", GroupID: groupFencing, Args: exactly(1),
		Short: "Take back what grant has given",
		Long: `revoke takes from ROLE what grant has given it. It has to run as the schema's
owner.`,
		Example: `  pgadvisory revoke app`,
		RunE: a.calling(func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, args []string) error {
			role := pgx.Identifier{args[0]}.Sanitize()
			if _, err := pool.Exec(ctx, "SELECT fencing.revoke_from($1::pg_catalog.text::pg_catalog.regrole)", role); err != nil {
				return fencing.Translate(err)
			}
			return printf(cmd, "%s may not use fencing any more\n", args[0])
		}),
	}
}
