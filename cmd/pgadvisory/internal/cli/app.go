package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/connect"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/supervise"
)

// closeLimit bounds the goodbye to the server.
const closeLimit = 2 * time.Second

// app is what all subcommands have.
type app struct {
	dsn           string
	sessionPooler bool
}

// Main runs the command line and returns what to exit with.
func Main(args []string) int {
	a := &app{}
	root := a.root()
	root.SetArgs(joinWatch(args))
	out := &output{file: os.Stdout}
	root.SetOut(out)
	err := root.Execute()
	if out.err != nil {
		err = &failure{code: exitOutput, err: out.err}
	}
	raise(err)
	var done *failure
	switch {
	case err == nil:
		return 0
	case errors.As(err, &done) && done.err == nil:
		return done.code
	case isKnown(err):
		say(root.ErrOrStderr(), message(err))
		return code(err)
	default: // of the library: a command or an argument that it doesn't know
		say(root.ErrOrStderr(), err.Error()+"\nTry 'pgadvisory --help'.")
		return exitUsage
	}
}

// raise ends this process by SIGINT if that is how it came to its end.
func raise(err error) {
	var (
		f      *failure
		signal interrupted
	)
	switch {
	case errors.As(err, &f):
		supervise.Raise(f.raise)
	case errors.As(err, &signal) && signal.signal == os.Interrupt:
		supervise.Raise(supervise.InterruptSelf)
	}
}

// reported is an error of a subcommand that ran, and not of its arguments.
type reported struct{ error }

func (r reported) Unwrap() error { return r.error }

func isKnown(err error) bool {
	var (
		f *failure
		r reported
	)
	return errors.As(err, &f) || errors.As(err, &r)
}

// say writes lines to people, each with the command's name.
func say(w io.Writer, text string) {
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, " \n"); line != "" {
			_, _ = fmt.Fprintf(w, "pgadvisory: %s\n", line)
		}
	}
}

// printf writes to stdout as the last thing that a subcommand does: that nobody
// could be told is an error.
func printf(cmd *cobra.Command, format string, args ...any) error {
	_, err := fmt.Fprintf(cmd.OutOrStdout(), format, args...)
	return err
}

// asking is a subcommand's RunE for what asks the database and ends; a signal
// ends it sooner.
func (a *app) asking(do func(ctx context.Context, cmd *cobra.Command, pool *pgxpool.Pool, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := untilSignal(cmd.Context())
		defer stop()
		pool, err := a.open(ctx)
		if err != nil {
			return reported{err}
		}
		defer closePool(pool)
		if err := do(ctx, cmd, pool, args); err != nil {
			if cause := context.Cause(ctx); cause != nil {
				err = cause
			}
			return reported{err}
		}
		return nil
	}
}

// untilSignal returns a context that ends with a signal, which is its cause.
func untilSignal(parent context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	supervise.Notify(signals, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	// Ends when stop is called.
	go func() {
		select {
		case s := <-signals:
			cancel(interrupted{s})
		case <-done:
		}
	}()
	return ctx, func() {
		signal.Stop(signals)
		close(done)
		cancel(nil)
	}
}

// open connects. The error says where the settings come from, and no password.
func (a *app) open(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := connect.Config(a.dsn)
	if err != nil {
		return nil, err
	}
	return connect.Open(ctx, config)
}

// closePool says goodbye, unless the server doesn't let it.
func closePool(pool *pgxpool.Pool) {
	closed := make(chan struct{})
	// Ends with the pool, or with the process.
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(closeLimit):
	}
}

func (a *app) lockConfig() *advisory.Config {
	return &advisory.Config{Reserve: advisory.NoReserve, SessionPooler: a.sessionPooler}
}
