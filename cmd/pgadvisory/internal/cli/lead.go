package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

const leadLong = `lead waits until it holds the lock NAME and runs COMMAND, as run does. When the lock
is lost it ends the command, waits until that has ended, and campaigns again. It
waits for a server that is down for as long as it takes, at the start too.

It ends when COMMAND ends while the lock is held, with the command's status. It is
fit to be the entry point of a container: SIGTERM, SIGINT and SIGQUIT resign. They
are sent on to COMMAND, and when that has ended the lock is freed and lead ends,
with the command's status, or 79 if the lock was lost meanwhile. Without a command
that runs they end lead at once, with 128+n.

COMMAND has the variable PGADVISORY_NAME. With --fence it also has
PGADVISORY_RESOURCE and PGADVISORY_TOKEN, with a greater token in each term. How
long a command can run without the lock, and what happens to processes that it
leaves, is as with run: see pgadvisory help run.

lead gives up, as run does, on what no waiting mends: wrong settings, a password, a
pooler, another engine.`

const leadExample = `  pgadvisory lead scheduler -- ./scheduler
  pgadvisory lead --fence scheduler -- ./scheduler

  # in a Dockerfile
  ENTRYPOINT ["pgadvisory", "lead", "scheduler", "--", "/app/scheduler"]`

// longTerm is how long a term lasts after which the next campaign begins without
// a longer pause.
const longTerm = 10 * time.Second

func (a *app) lead() *cobra.Command {
	o := runOptions{grace: seconds{defaultGrace}, lead: true}
	cmd := &cobra.Command{
		Use: "lead [flags] NAME -- COMMAND [ARGUMENT...]", GroupID: groupLocks, DisableFlagsInUseLine: true,
		Short: "Run a command whenever the lock is held, and again after a loss",
		Long:  leadLong, Example: leadExample,
		Args: func(cmd *cobra.Command, args []string) (err error) {
			o.names, o.command, err = splitArguments(cmd, args)
			if err == nil && len(o.names) > 1 {
				err = usage("expected one lock name before --, got %d", len(o.names))
			}
			return err
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runner(cmd, o).campaign(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&o.fence, "fence", "", false, "draw a fencing token of the resource NAME for each term")
	flags.Var(&o.grace, "grace", "time from SIGTERM to SIGKILL")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "say when the lock is waited for, held and freed")
	return cmd
}

// campaign runs term after term until one ends otherwise than by a loss.
func (r *runner) campaign(parent context.Context) error {
	stop, err := r.listen()
	if err != nil {
		return err
	}
	defer stop()
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		begun := time.Now()
		lost, err := r.term(parent)
		if !lost {
			return err
		}
		r.say(message(err) + "\ncampaigning again")
		r.awaited = ""
		if time.Since(begun) > longTerm {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case sig := <-r.signals.C:
			return reported{interrupted{sig}}
		}
	}
}
