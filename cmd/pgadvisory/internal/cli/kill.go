package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/connect"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/lockview"
)

const killLong = `kill shows who holds the lock or the semaphore NAME, asks, and terminates the
server processes of these sessions. The server frees the lock. A holder that is a
Go program or pgadvisory run learns of it at once; until it has, both it and the
next holder work, unless what they write is fenced.

It spares a session that has freed the lock meanwhile. The role has to be a member of
the holder's role, or of pg_signal_backend. kill can't end a prepared transaction:
COMMIT PREPARED or ROLLBACK PREPARED frees its locks. Without a terminal, use --yes.

The status is 1 if nobody holds the lock, or if the answer is no.`

const killExample = `  pgadvisory kill nightly-export
  pgadvisory kill --yes nightly-export`

// killLimit bounds the wait for the end of a session that was terminated.
const killLimit = 5 * time.Second

func (a *app) kill() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "kill NAME", GroupID: groupLocks,
		Short: "Terminate the session that holds a lock",
		Long:  killLong, Example: killExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := exactly(1)(cmd, args); err != nil {
				return err
			}
			return checkName(args[0])
		},
		ValidArgsFunction: a.completeNames,
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	cmd.RunE = a.asking(func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, args []string) error {
		name := args[0]
		holders, err := holdersOf(ctx, pool, name)
		if err != nil {
			return err
		}
		out := cmd.OutOrStdout()
		if len(holders) == 0 {
			_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "pgadvisory: nobody holds %s\n", lockview.Printable(name))
			return &failure{code: exitNo}
		}
		width, _, _ := terminalSize(out)
		_, _ = fmt.Fprint(out, lockview.Table(holders, width))
		if !yes && !confirm(ctx, cmd.InOrStdin(), out, fmt.Sprintf("Terminate %s?", sessions(len(holders)))) {
			return refused(ctx, "nothing was terminated")
		}
		return terminateAll(ctx, pool, out, holders)
	})
	return cmd
}

// terminateAll goes on after an error, so that nobody is spared because of another.
func terminateAll(ctx context.Context, pool *pgxpool.Pool, out io.Writer, holders []lockview.Row) error {
	var errs []error
	for _, holder := range holders {
		err := terminate(ctx, pool, holder)
		if err == nil {
			_, err = fmt.Fprintf(out, "terminated %d\n", holder.PID)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func holdersOf(ctx context.Context, pool *pgxpool.Pool, name string) ([]lockview.Row, error) {
	rows, err := lockview.Look(ctx, pool, connect.Application, name)
	if err != nil {
		return nil, err
	}
	var holders []lockview.Row
	for _, row := range rows {
		if row.State == lockview.Held && !row.Announces() {
			holders = append(holders, row)
		}
	}
	return holders, nil
}

// terminateSQL is true if the process was told to end. It is the same session as
// the one that was shown, and still holds the lock.
const terminateSQL = `SELECT pg_catalog.pg_terminate_backend(a.pid) FROM pg_catalog.pg_stat_activity a
WHERE a.pid OPERATOR(pg_catalog.=) $1::int AND a.backend_start IS NOT DISTINCT FROM $2::timestamptz
AND EXISTS (SELECT FROM pg_catalog.pg_locks l WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory'
	AND l.pid OPERATOR(pg_catalog.=) a.pid AND l.granted AND l.objsubid OPERATOR(pg_catalog.=) 1
	AND (l.classid::bigint OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.|) l.objid::bigint OPERATOR(pg_catalog.=) $3::bigint)`

// terminate ends a holder's session and returns when it holds nothing any more.
func terminate(ctx context.Context, pool *pgxpool.Pool, holder lockview.Row) error {
	if holder.Prepared != "" {
		return &failure{code: exitNo, err: fmt.Errorf("the prepared transaction %s can't be terminated; end it with: ROLLBACK PREPARED '%s'",
			lockview.Printable(holder.Prepared), strings.ReplaceAll(holder.Prepared, "'", "''"))}
	}
	var begun *time.Time
	if !holder.Status.BackendStart.IsZero() {
		begun = &holder.Status.BackendStart
	}
	var told bool
	err := connect.ReadRow(ctx, pool, terminateSQL, []any{holder.PID, begun, holder.Number()}, &told)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil // it has given the lock back
	}
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(killLimit); ; {
		holders, err := holdersOf(ctx, pool, holder.Name)
		if err != nil {
			return err
		}
		still := false
		for _, h := range holders {
			still = still || h.PID == holder.PID && h.Status.BackendStart.Equal(holder.Status.BackendStart)
		}
		switch {
		case !still:
			return nil
		case time.Now().After(deadline):
			return &failure{code: exitNo, err: fmt.Errorf("process %d was told to end and still holds the lock after %v", holder.PID, killLimit)}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func sessions(n int) string {
	if n == 1 {
		return "this session"
	}
	return fmt.Sprintf("these %d sessions", n)
}

// refused is the error where confirm said no.
func refused(ctx context.Context, what string) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return &failure{code: exitNo, err: errors.New(what + "; answer y, or use --yes to skip the question")}
}

// confirm asks, and takes no answer for a no.
func confirm(ctx context.Context, in io.Reader, out io.Writer, question string) bool {
	_, _ = fmt.Fprint(out, question+" [y/N] ")
	answer := make(chan string, 1)
	// Ends with the line, or with the process.
	go func() {
		line, _ := bufio.NewReader(in).ReadString('\n')
		answer <- line
	}()
	select {
	case line := <-answer:
		if line == "" { // nobody has ended the line of the question
			_, _ = fmt.Fprintln(out)
		}
		line = strings.ToLower(strings.TrimSpace(line))
		return line == "y" || line == "yes"
	case <-ctx.Done():
		return false
	}
}
