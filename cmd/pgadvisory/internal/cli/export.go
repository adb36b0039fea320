package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/migrations"
)

const exportLong = `export writes the migrations for another tool into FOLDER, which it makes if it is not
there. It does not connect, and does not overwrite a file that differs. Use one tool
for a database from the first migration on: each has a record of its own of what has
run.

  goose            up and down in one file
  golang-migrate   a file for each; give it a table of versions of its own
                   (x-migrations-table), or renumber the files after yours
  tern             up and down in one file; give it a table of versions of its own
                   (version_table), or renumber the files after yours
  sql              a file for each, for psql`

func (a *app) migrateExport() *cobra.Command {
	var format string
	cmd := &cobra.Command{
		Use: "export --format FORMAT FOLDER", Args: exactly(1), DisableFlagsInUseLine: true,
		Short: "Write the migrations for goose, golang-migrate, tern or psql",
		Long:  exportLong,
		Example: `  pgadvisory migrate export --format goose ./migrations
  pgadvisory migrate export --format sql /tmp/fencing && psql -f /tmp/fencing/00001_tokens.up.sql`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(migrations.Formats(), format) {
				return usage("--format %s: one of %s", format, strings.Join(migrations.Formats(), ", "))
			}
			files, err := migrations.Export(format)
			if err != nil {
				return reported{err}
			}
			if err := writeNew(args[0], files); err != nil {
				return &failure{code: exitSystem, err: err}
			}
			for _, file := range files {
				_, _ = fmt.Fprintln(cmd.OutOrStdout(), filepath.Join(args[0], file.Name))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&format, "format", "", strings.Join(migrations.Formats(), ", "))
	_ = cmd.MarkFlagRequired("format")
	_ = cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(migrations.Formats(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// writeNew writes all files, or none if one is there with another content.
func writeNew(folder string, files []migrations.File) error {
	for _, file := range files {
		path := filepath.Join(folder, file.Name)
		if text, err := os.ReadFile(path); err == nil && string(text) != string(file.Content) {
			return fmt.Errorf("%s is there and differs; nothing was written", path)
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, file := range files {
		if err := os.WriteFile(filepath.Join(folder, file.Name), file.Content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
