package cli

import (
	"context"
	"encoding/json"
	"io"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/connect"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/lockview"
)

const lsLong = `ls shows who holds an advisory lock of the database and who waits for one, lock
by lock, the holders first. With names it shows these locks and semaphores only.

On a terminal it shortens names and leaves out columns that do not fit: KEY, CLIENT,
USER and then APPLICATION. A lock without a name is shown by its key then.

  NAME         the lock's name where it is known: because it is an argument,
               because a holder tells it by its application_name, as this
               command and the Go package do, or because it is a resource of
               fencing. Slots of a semaphore have their number and the limit.
               Of a long name there may be only the beginning, and of several
               locks of one run only the first: "(with NAME)".
  KEY          the number, or two of pg_advisory_lock(int, int)
  MODE         exclusive or shared
  PID          the server process, for pg_terminate_backend
  USER, APPLICATION, CLIENT
               as in pg_stat_activity, but the application_name without the
               lock's name; "local" is a Unix socket
  HELD FOR     where the holder tells it, as run does; otherwise the age of the
               session after "<=": the server does not record more
  WAITING FOR  and for which processes; in a narrow terminal the first of them and
               the number of others. The Go package asks the server again several
               times a second, and its waits show only the time since the last
               request. Waits of run show the whole wait, unless the
               application_name is set. Of the sessions that run or the Go package
               keeps waiting for one lock in the exclusive mode, four at most are
               shown: the others do not wait on the server.

A role sees the client and the times of other roles only with pg_read_all_stats,
which is part of pg_monitor.

JSON is an array with an object for each line: name, slot, limit, key, mode, state
(held or waiting), pid, prepared, blocked_by, user, application, client,
held_seconds or held_at_most_seconds, waiting_seconds. What is not known is left
out. A semaphore's holder is there twice: with its slot, and with the lock that
announces the limit, which has a limit and no slot. With --watch there is an array
on each line.`

const lsExample = `  pgadvisory ls
  pgadvisory ls --watch nightly-export
  pgadvisory ls --watch 10s
  pgadvisory ls --json | jq '.[] | select(.state == "waiting") | .pid'`

func (a *app) ls() *cobra.Command {
	var (
		asJSON bool
		watch  seconds
	)
	cmd := &cobra.Command{
		Use: "ls [NAME...]", GroupID: groupLocks,
		Short: "Show who holds locks and who waits for them",
		Long:  lsLong, Example: lsExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("watch") && watch.Duration < 100*time.Millisecond {
				return usage("--watch=%v: at least 100ms", watch.Duration)
			}
			for _, name := range args {
				if err := checkName(name); err != nil {
					return err
				}
			}
			return nil
		},
		ValidArgsFunction: a.completeNames,
	}
	cmd.RunE = a.asking(func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, names []string) error {
		out := cmd.OutOrStdout()
		watching := watch.Duration > 0
		show := func() error {
			rows, err := lockview.Look(ctx, pool, connect.Application, names...)
			switch {
			case err != nil:
				return err
			case asJSON && watching:
				return json.NewEncoder(out).Encode(rows)
			case asJSON:
				return printJSON(out, rows)
			case watching:
				return redraw(out, rows, time.Now())
			default:
				width, _, _ := terminalSize(out)
				_, err := io.WriteString(out, lockview.Table(rows, width))
				return err
			}
		}
		if !watching {
			return show()
		}
		for {
			if err := show(); err != nil {
				return err
			}
			select {
			case <-time.After(watch.Duration):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().Var(&watch, "watch", "show it again and again, in place on a terminal; --watch 10s changes the interval")
	cmd.Flags().Lookup("watch").NoOptDefVal = "2s"
	return cmd
}

// completeNames offers the names of what is locked now.
func (a *app) completeNames(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*time.Second)
	defer cancel()
	pool, err := a.open(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer closePool(pool)
	rows, err := lockview.Look(ctx, pool, connect.Application)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, row := range rows {
		if row.Name != "" && !slices.Contains(args, row.Name) && !slices.Contains(names, row.Name) {
			names = append(names, row.Name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}
