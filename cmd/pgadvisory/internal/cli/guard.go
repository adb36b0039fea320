package cli

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/fencing"
)

const guardLong = `guard makes the database refuse each write to TABLE whose transaction is not stamped
with the current token of RESOURCE, by whomever, from now on. TABLE is written as in
SQL, with a schema and with quotes where it needs them. It has to be a plain table.

It has to run as the table's owner, who can also remove the guard: an application
should connect as another role. It waits for the transactions that use the table.
Guarding a table again for the same resource changes nothing.`

func (a *app) guard() *cobra.Command {
	return &cobra.Command{
		Use: "guard TABLE RESOURCE", GroupID: groupFencing, Args: exactly(2),
		Short: "Refuse writes to a table that carry no current token",
		Long:  guardLong,
		Example: `  pgadvisory guard public.exports nightly-export
  pgadvisory run --fence nightly-export -- ./export.sh`,
		RunE: a.calling(func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, args []string) error {
			if err := fencing.Guard(ctx, pool, args[0], args[1]); err != nil {
				return err
			}
			return printf(cmd, "%s is guarded for %s\n", args[0], args[1])
		}),
	}
}
