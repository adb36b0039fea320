package cli

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/fencing"
)

const verifyLong = `verify looks whether every guard is whole: whether its triggers are there and always on,
whether the schema fencing is as it was installed, and whether a table was changed so
that it can be written past its guard. It changes nothing.

It shows each guarded table with its resource, or the column that names it, and each
problem with the SQL that mends it, if it needs no decision. The status is 0 if there is no problem, and 1 if
there is.

JSON is an object: ok, tables (each with table, resource, column, prefix, problems)
and problems; a problem has what and fix, which is empty where somebody has to decide.`

func (a *app) verify() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "verify", GroupID: groupFencing, Args: cobra.NoArgs,
		Short: "Look whether every guard is whole",
		Long:  verifyLong,
		Example: `  pgadvisory verify
  pgadvisory verify --json | jq '.tables[] | select(.problems != [])'`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.RunE = a.calling(func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, _ []string) error {
		report, err := fencing.Verify(ctx, pool)
		if err != nil {
			return err
		}
		if asJSON {
			err = printJSON(cmd.OutOrStdout(), verifyJSON(report))
		} else {
			err = printReport(cmd.OutOrStdout(), report)
		}
		if err == nil && !report.OK() {
			err = &failure{code: exitNo}
		}
		return err
	})
	return cmd
}

func printReport(out io.Writer, report *fencing.Report) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "TABLE\tGUARDED FOR\t")
	for _, t := range report.Tables {
		state := "ok"
		if len(t.Problems) > 0 {
			state = "PROBLEM"
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", t.Table, guardedFor(t), state)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	problems := report.Problems
	for _, t := range report.Tables {
		problems = append(problems, t.Problems...)
	}
	for _, p := range problems {
		if _, err := fmt.Fprintf(out, "problem: %s\n", p.What); err != nil {
			return err
		}
		if p.Fix == "" {
			continue // What says what to do
		}
		if _, err := fmt.Fprintf(out, "    fix: %s\n", p.Fix); err != nil {
			return err
		}
	}
	return nil
}

func guardedFor(t fencing.TableReport) string {
	switch {
	case t.Column != "":
		return "each row's " + rowResource(t.Prefix, t.Column)
	case t.Resource != "":
		return t.Resource
	default:
		return "-"
	}
}

type problemJSON struct {
	What string `json:"what"`
	Fix  string `json:"fix"`
}

type tableJSON struct {
	Table    string        `json:"table"`
	Resource string        `json:"resource,omitempty"`
	Column   string        `json:"column,omitempty"`
	Prefix   string        `json:"prefix,omitempty"`
	Problems []problemJSON `json:"problems"`
}

type reportJSON struct {
	OK       bool          `json:"ok"`
	Tables   []tableJSON   `json:"tables"`
	Problems []problemJSON `json:"problems"`
}

func verifyJSON(report *fencing.Report) reportJSON {
	problems := func(all []fencing.Problem) []problemJSON {
		list := []problemJSON{}
		for _, p := range all {
			list = append(list, problemJSON(p))
		}
		return list
	}
	r := reportJSON{OK: report.OK(), Tables: []tableJSON{}, Problems: problems(report.Problems)}
	for _, t := range report.Tables {
		r.Tables = append(r.Tables, tableJSON{t.Table, t.Resource, t.Column, t.Prefix, problems(t.Problems)})
	}
	return r
}
