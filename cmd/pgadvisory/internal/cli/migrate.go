package cli

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/doctor"
	"github.com/pgadvisory/pgadvisory/migrations"
)

const migrateLong = `migrate installs and removes what fencing needs in a database: the schema fencing
with a sequence, a table and a few functions. It is for the database in which the
guarded tables are, and that is also where the locks have to be taken.

The role that installs it owns the schema. Other roles get what they need with
pgadvisory grant ROLE.`

func (a *app) migrate() *cobra.Command {
	cmd := &cobra.Command{
		Use: "migrate", GroupID: groupFencing, Args: cobra.NoArgs,
		Short: "Install, upgrade or remove the schema of fencing",
		Long:  migrateLong,
		Example: `  pgadvisory migrate up
  pgadvisory migrate status`,
		RunE: func(*cobra.Command, []string) error {
			return usage("expected up, down, status or export: pgadvisory migrate up")
		},
	}
	cmd.AddCommand(a.migrateUp(), a.migrateDown(), a.migrateStatus(), a.migrateExport())
	return cmd
}

func (a *app) migrateUp() *cobra.Command {
	return &cobra.Command{
		Use: "up", Args: cobra.NoArgs,
		Short: "Install fencing, or bring it to the newest version",
		Long: `up installs fencing, or brings it to the version of this program; it does nothing
if it is there. It may run in many places at once. Each migration is one transaction.
The first time, the role needs the privilege to create a schema in the database, and
becomes its owner. Later runs need that role, and the server itself: no pooler.`,
		Example: `  DATABASE_URL=postgres://owner@db/app pgadvisory migrate up`,
		RunE: a.asking(func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, _ []string) error {
			before, err := migrations.Version(ctx, pool)
			if err != nil {
				return err
			}
			if err := migrations.Up(ctx, pool); err != nil {
				return migrateError(err)
			}
			after, err := migrations.Version(ctx, pool)
			if err != nil {
				return err
			}
			if before == after {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "fencing is at version %d already\n", after)
			} else {
				_, _ = fmt.Fprintf(cmd.OutOrStdout(), "fencing is now at version %d (was %d)\n", after, before)
			}
			return nil
		}),
	}
}

func (a *app) migrateDown() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "down", Args: cobra.NoArgs,
		Short: "Remove fencing with all its marks",
		Long: `down asks, and removes fencing. Tokens that are drawn after it was installed again
begin at 1, and a holder of before could pass for one of then: stop all who hold
tokens first. It refuses, and changes nothing, while a table is guarded or something
else depends on the schema.`,
		Example: `  pgadvisory migrate down --yes`,
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	cmd.RunE = a.asking(func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, _ []string) error {
		out := cmd.OutOrStdout()
		before, err := migrations.Version(ctx, pool)
		if err != nil {
			return err
		}
		if before == 0 {
			_, _ = fmt.Fprintln(out, "fencing is not installed")
			return nil
		}
		if !yes && !confirm(ctx, cmd.InOrStdin(), out, "Remove fencing, and forget all tokens?") {
			return refused(ctx, "nothing was removed")
		}
		if err := migrations.Down(ctx, pool); err != nil {
			return migrateError(err)
		}
		_, _ = fmt.Fprintln(out, "fencing is removed")
		return nil
	})
	return cmd
}

func (a *app) migrateStatus() *cobra.Command {
	return &cobra.Command{
		Use: "status", Args: cobra.NoArgs,
		Short: "Say which version of fencing is installed",
		Long: `status says which version of fencing is installed, and which this program brings.
The status is 1 if there is something to do.`,
		Example: `  pgadvisory migrate status || pgadvisory migrate up`,
		RunE: a.asking(func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, _ []string) error {
			newest, err := doctor.NewestMigration()
			if err != nil {
				return err
			}
			version, err := migrations.Version(ctx, pool)
			if err != nil {
				return err
			}
			out := cmd.OutOrStdout()
			switch {
			case version == 0:
				_, _ = fmt.Fprintf(out, "not installed; the newest version is %d\n", newest)
			case version < newest:
				_, _ = fmt.Fprintf(out, "version %d; the newest is %d\n", version, newest)
			default:
				_, _ = fmt.Fprintf(out, "version %d\n", version)
				return nil
			}
			return &failure{code: exitNo}
		}),
	}
}
