package cli

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/fencing"
)

func (a *app) grant() *cobra.Command {
	return &cobra.Command{
		Use: "grant ROLE", GroupID: groupFencing, Args: exactly(1),
		Short: "Let a role draw tokens and stamp its transactions",
		Long: `grant gives ROLE all that it needs of the schema fencing to lock resources and to
stamp its transactions, and nothing by which it could move a mark otherwise. It does
not give the right to write to any table. It has to run as the schema's owner.`,
		Example: `  pgadvisory grant app`,
		RunE: a.calling(func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, args []string) error {
			role := pgx.Identifier{args[0]}.Sanitize()
			if _, err := pool.Exec(ctx, "SELECT fencing.grant_to($1::pg_catalog.text::pg_catalog.regrole)", role); err != nil {
				return fencing.Translate(err)
			}
			return printf(cmd, "%s may use fencing\n", args[0])
		}),
	}
}
