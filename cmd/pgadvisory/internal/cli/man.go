package cli

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

func (a *app) man() *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", GroupID: groupHelp, Args: cobra.ExactArgs(1),
		Short: "Write the manual pages into a folder",
		Long: `man writes a page of section 1 for pgadvisory and for each of its subcommands
into FOLDER, which it makes if it is not there.`,
		Example: `  pgadvisory man /usr/local/share/man/man1
  man pgadvisory-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return &failure{code: exitSystem, err: err}
			}
			if err := doc.GenManTree(cmd.Root(), &doc.GenManHeader{Section: "1", Source: "pgadvisory"}, args[0]); err != nil {
				return &failure{code: exitSystem, err: err}
			}
			return nil
		},
	}
}
