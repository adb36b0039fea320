package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/advisory"
)

const runLong = `run waits until it holds the lock NAME, runs COMMAND, and frees the lock when the
command has ended. With several names it holds all of their locks or none. It exits
with the command's status, or with 128+n if signal n ended the command. The command
has run start to end under the lock, or the status is 79.

COMMAND is run directly; for a shell's syntax write sh -c '...'. It has stdin,
stdout, stderr, the environment and the folder of pgadvisory, and the variable
PGADVISORY_NAME: the name, or the names with a line for each. Messages of
pgadvisory go to stderr.

A name that begins with - stands between two --: pgadvisory run -- -x -- COMMAND

THE WAIT
  Without flags run waits for as long as it takes. --no-wait gives up at once,
  --wait after a while, both with the status 75 or --conflict-exit-code. A server
  that restarts while run waits is waited for, too. With --wait so is a server
  that is down at the start, as at boot; if it stays down the status is 69.

FENCING
  With --fence the lock is that of the fenced resource NAME, which is the same
  lock, and the command gets two more variables:

    PGADVISORY_RESOURCE   the name
    PGADVISORY_TOKEN      the token, a number

  A transaction that begins with SELECT fencing.stamp(resource, token) may write
  to the tables that are guarded for the resource, until a later holder draws a
  token: then the database refuses it, whatever the writer believes.

WHEN THE LOCK IS LOST
  The session can end while the command runs: a restart, a failover, a broken
  network, pgadvisory kill. That is noticed at once when the server or the network
  says so, and within 10 s when all goes silent. The command's process group
  then gets SIGTERM, and SIGKILL after --grace; the status is 79. What must not be
  written twice in that time needs --fence.

SIGNALS
  SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGWINCH, SIGTSTP and SIGCONT are sent on to
  the process group of the command, SIGUSR1 and SIGUSR2 to the command. What ends
  then, and with what status, the command decides. During the wait the first four
  end pgadvisory, and nothing stays locked.

  If pgadvisory is killed with SIGKILL, or crashes, the process group gets
  SIGKILL at the same time. What the command leaves running in its process group
  when it ends gets SIGTERM, and SIGKILL after --grace. Both come before the lock
  is freed. What leaves the process group, as daemons do by setsid, is not
  followed.

  A process that has become another user's, as with sudo, can't be signalled
  unless root runs pgadvisory. On Linux the lock then stays held until that
  process has ended by itself.

  On Windows there is no SIGTERM: the command and what it has started are
  terminated at once.`

const runExample = `  # in the crontab of each machine; one runs, the others stay silent
  0 2 * * * pgadvisory run --no-wait --quiet --conflict-exit-code 0 nightly-export -- /usr/local/bin/export

  # wait for half a minute
  pgadvisory run --wait 30s deploy -- ./deploy.sh

  # at most 3 at a time
  pgadvisory run --limit 3 thumbnails -- ./make-thumbnails

  # readers together, writers alone
  pgadvisory run --shared report -- ./read
  pgadvisory run report -- ./write

  # several locks, all or none
  pgadvisory run accounts invoices -- ./close-month

  # writes that the database refuses once a later holder has a token
  pgadvisory run --fence nightly-export -- sh -c '
    psql -q -v ON_ERROR_STOP=1 -v r="$PGADVISORY_RESOURCE" -v t="$PGADVISORY_TOKEN" <<SQL
    BEGIN;
    SELECT fencing.stamp(:'\''r'\'', :t) \g /dev/null
    INSERT INTO exports (day) VALUES (current_date);
    COMMIT;
    SQL'`

// defaultGrace is the time from SIGTERM to SIGKILL.
const defaultGrace = 5 * time.Second

// runOptions are the arguments and flags of run and lead.
type runOptions struct {
	names, command        []string
	lead                  bool
	noWait, shared, fence bool
	quiet, verbose        bool
	wait                  seconds
	grace                 seconds
	limit                 int
	conflictCode          int
}

func (a *app) run() *cobra.Command {
	o := runOptions{grace: seconds{defaultGrace}, conflictCode: exitConflict}
	cmd := &cobra.Command{
		Use: "run [flags] NAME... -- COMMAND [ARGUMENT...]", GroupID: groupLocks, DisableFlagsInUseLine: true,
		Short: "Run a command while holding a lock",
		Long:  runLong, Example: runExample,
		Args: func(cmd *cobra.Command, args []string) error { return o.check(cmd, args) },
		RunE: func(cmd *cobra.Command, _ []string) error { return a.runner(cmd, o).run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.BoolVarP(&o.noWait, "no-wait", "n", false, "give up at once if the lock is held")
	flags.VarP(&o.wait, "wait", "w", "give up after this time, as 30s or 1h30m; a plain number is seconds")
	flags.IntVarP(&o.conflictCode, "conflict-exit-code", "E", exitConflict, "exit with this when giving up")
	flags.BoolVarP(&o.shared, "shared", "s", false, "share the lock with others that do so")
	flags.IntVar(&o.limit, "limit", 0, "let as many hold NAME at a time, which is a semaphore then")
	flags.BoolVarP(&o.fence, "fence", "", false, "draw a fencing token of the resource NAME for the command")
	flags.Var(&o.grace, "grace", "time from SIGTERM to SIGKILL")
	flags.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing when giving up")
	flags.BoolVarP(&o.verbose, "verbose", "v", false, "say when the lock is waited for, held and freed")
	cmd.MarkFlagsMutuallyExclusive("no-wait", "wait")
	cmd.MarkFlagsMutuallyExclusive("shared", "limit", "fence")
	cmd.MarkFlagsMutuallyExclusive("quiet", "verbose")
	return cmd
}

func (o *runOptions) check(cmd *cobra.Command, args []string) (err error) {
	flags := cmd.Flags()
	if o.names, o.command, err = splitArguments(cmd, args); err != nil {
		return err
	}
	switch {
	case len(o.names) > 1 && (o.shared || o.fence || flags.Changed("limit")):
		return usage("expected one lock name before --, got %d: --shared, --limit and --fence are for one", len(o.names))
	case flags.Changed("limit") && (o.limit < 1 || o.limit > advisory.MaxSlots):
		return usage("--limit=%d: from 1 to %d", o.limit, advisory.MaxSlots)
	case o.conflictCode < 0 || o.conflictCode > 255:
		return usage("--conflict-exit-code=%d: from 0 to 255", o.conflictCode)
	}
	if flags.Changed("wait") && o.wait.Duration == 0 {
		o.noWait = true
	}
	return nil
}

// splitArguments tells the names from the command after --. A name that begins with
// a dash would be a flag before --, so that such names stand between two of them.
func splitArguments(cmd *cobra.Command, args []string) (names, command []string, err error) {
	dash := cmd.ArgsLenAtDash()
	second := -1
	if dash == 0 && len(args) > 0 && strings.HasPrefix(args[0], "-") {
		second = slices.Index(args, "--")
	}
	switch {
	case dash < 0:
		return nil, nil, usage("expected -- between the name and the command: pgadvisory %s NAME -- COMMAND", cmd.Name())
	case second > 0:
		names, command = args[:second], args[second+1:]
	case dash == 0:
		return nil, nil, usage("expected a lock name before --")
	default:
		names, command = args[:dash], args[dash:]
	}
	if len(command) == 0 {
		return nil, nil, usage("expected a command after --")
	}
	for _, name := range names {
		if err := checkName(name); err != nil {
			return nil, nil, err
		}
	}
	return names, command, nil
}
