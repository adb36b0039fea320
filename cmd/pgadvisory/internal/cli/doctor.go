package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/connect"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/doctor"
)

const doctorLong = `doctor connects as run does, names the engine or service that it finds, and looks for
what would break locks or fencing: a pooler, a standby, another engine or an old
server; an encoding with which names have other numbers; a missing language; a lock
table or connections that run out; settings and privileges that are missing; guards
that are broken. It says where the epoch of tokens comes from and whether the role
can create event triggers. Each line says what was found:

  ok       as it should be
  note     worth knowing, breaks nothing by itself
  problem  breaks locks or fencing

and the line after it how to mend it. It takes one lock with a name of its own for a
moment, and changes nothing.

The status is 0 if there is no problem, and 1 if there is.`

func (a *app) doctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "doctor", GroupID: groupLocks, Args: cobra.NoArgs,
		Short: "Look for what would break locks or fencing here",
		Long:  doctorLong,
		Example: `  pgadvisory doctor
  pgadvisory doctor --json | jq '.[] | select(.level == "problem")'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilSignal(cmd.Context())
			defer stop()
			config, err := connect.Config(a.dsn)
			if err != nil {
				return reported{err}
			}
			report, err := doctor.Check(ctx, config, a.sessionPooler)
			if err != nil {
				return reported{context.Cause(ctx)}
			}
			if asJSON {
				err = printJSON(cmd.OutOrStdout(), report)
			} else {
				err = report.Print(cmd.OutOrStdout())
			}
			if err == nil && !report.OK() {
				err = &failure{code: exitNo}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
