package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The pages are made here and not by cobra/doc: that goes through Markdown, which
// joins the lines of lists and tables, and what it needs takes every start of the
// program some milliseconds.

func (a *app) man() *cobra.Command {
	return &cobra.Command{
		Use: "man FOLDER", GroupID: groupHelp, Args: exactly(1),
		Short: "Write the manual pages into a folder",
		Long: `man writes a page of section 1 for pgadvisory and for each of its subcommands
into FOLDER, which it makes if it is not there.`,
		Example: `  pgadvisory man /usr/local/share/man/man1
  man pgadvisory-run`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return &failure{code: exitSystem, err: err}
			}
			return writePages(cmd.Root(), args[0])
		},
	}
}

func writePages(cmd *cobra.Command, folder string) error {
	name := pageName(cmd)
	if err := os.WriteFile(filepath.Join(folder, name+".1"), page(cmd), 0o644); err != nil {
		return &failure{code: exitSystem, err: err}
	}
	for _, sub := range cmd.Commands() {
		if !sub.IsAvailableCommand() {
			continue
		}
		if err := writePages(sub, folder); err != nil {
			return err
		}
	}
	return nil
}

func pageName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// page is the manual page of a command, for man(7).
func page(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	section := func(title string) { fmt.Fprintf(&b, ".SH %s\n", title) }
	verbatim := func(text string) { fmt.Fprintf(&b, ".nf\n%s\n.fi\n", roff(strings.Trim(text, "\n"))) }

	fmt.Fprintf(&b, ".TH %q 1 \"\" %q\n", strings.ToUpper(pageName(cmd)), "pgadvisory "+version())
	section("NAME")
	fmt.Fprintf(&b, "%s \\- %s\n", roff(pageName(cmd)), roff(cmd.Short))
	section("SYNOPSIS")
	verbatim(cmd.UseLine())
	section("DESCRIPTION")
	for block := range strings.SplitSeq(cmd.Long, "\n\n") {
		// A line in capitals is a heading of the help texts.
		title, rest, _ := strings.Cut(block, "\n")
		if title == strings.ToUpper(title) && !strings.HasPrefix(title, " ") {
			section(title)
			block = rest
		}
		b.WriteString(".PP\n")
		verbatim(block)
	}
	for _, set := range []struct {
		title string
		flags *pflag.FlagSet
	}{{"OPTIONS", cmd.NonInheritedFlags()}, {"GLOBAL OPTIONS", cmd.InheritedFlags()}} {
		if set.flags.HasAvailableFlags() {
			section(set.title)
			verbatim(plainFlags(set.flags.FlagUsages()))
		}
	}
	if cmd.HasExample() {
		section("EXAMPLES")
		verbatim(cmd.Example)
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, pageName(cmd.Parent())+"(1)")
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() {
			others = append(others, pageName(sub)+"(1)")
		}
	}
	if len(others) > 0 {
		section("SEE ALSO")
		b.WriteString(roff(strings.Join(others, ", ")) + "\n")
	}
	return b.Bytes()
}

// roff is a text as roff takes it literally.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
