package cli

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/fencing"
)

const guardByLong = `guard-by makes the database refuse each write to a row of TABLE whose transaction is
not stamped with the current token of the row's own resource, which is in COLUMN: for
a lock for each tenant, order or device. With --prefix the resource is the prefix and
the value, so that the column 42 and the prefix tenant: are the resource tenant:42.

Like guard, it has to run as the table's owner.`

// rowResource shows how the resource of a row is made of a prefix and a column.
func rowResource(prefix, column string) string { return fmt.Sprintf("%s<%s>", prefix, column) }

func (a *app) guardBy() *cobra.Command {
	var prefix string
	cmd := &cobra.Command{
		Use: "guard-by TABLE COLUMN", GroupID: groupFencing, Args: exactly(2),
		Short: "Refuse writes to rows by the resource that each row names",
		Long:  guardByLong,
		Example: `  pgadvisory guard-by public.orders tenant --prefix tenant:
  pgadvisory run --fence tenant:42 -- ./close-orders.sh 42`,
	}
	cmd.Flags().StringVar(&prefix, "prefix", "", "what comes before the column's value in the resource's name")
	cmd.RunE = a.calling(func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, args []string) (err error) {
		if prefix == "" {
			err = fencing.GuardBy(ctx, pool, args[0], args[1])
		} else {
			err = fencing.GuardByPrefix(ctx, pool, args[0], args[1], prefix)
		}
		if err != nil {
			return err
		}
		return printf(cmd, "%s: each row is guarded for the resource %s\n", args[0], rowResource(prefix, args[1]))
	})
	return cmd
}
