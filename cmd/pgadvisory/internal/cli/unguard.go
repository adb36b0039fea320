package cli

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/fencing"
)

func (a *app) unguard() *cobra.Command {
	return &cobra.Command{
		Use: "unguard TABLE", GroupID: groupFencing, Args: exactly(1),
		Short: "Let everybody with the privilege write to a table again",
		Long: `unguard removes the guard of TABLE. Marks and tokens stay. It has to run as the
table's owner. It is an error if the table is not guarded.`,
		Example: `  pgadvisory unguard public.exports`,
		RunE: a.calling(func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, args []string) error {
			if err := fencing.Unguard(ctx, pool, args[0]); err != nil {
				return err
			}
			return printf(cmd, "%s is not guarded any more\n", args[0])
		}),
	}
}
