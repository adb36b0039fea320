package cli

import (
	"fmt"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

const rootLong = `pgadvisory runs a command while it holds a PostgreSQL advisory lock, so that a
cron job, a batch export or a deployment step runs once and not once on every
machine. It shows who holds and who waits, and it installs and checks fencing,
by which the database refuses the writes of a holder that has lost its lock.

The lock named NAME is pg_advisory_lock(hashtextextended('NAME', 0)): psql, any
other language and the Go packages of this module meet it under that number.

CONNECTION
  The first of these that is given counts:

  --dsn            a URL or keywords and values, without a password: the list of
                   processes shows it to everybody
  DATABASE_URL     the same, with a password if need be
  PGHOST, PGPORT, PGDATABASE, PGUSER, PGPASSWORD, PGPASSFILE, PGSERVICE,
  PGSERVICEFILE, PGSSLMODE, PGSSLROOTCERT, PGAPPNAME, PGCONNECT_TIMEOUT, ...
                   as psql has them, with its defaults

  libpq's variables also fill in what the others leave open, and so do the
  service file and the password file. A connection has to be made within 10 s,
  or within connect_timeout. Locks are local to a database: all who are to
  exclude each other have to connect to the same one.

EXIT STATUS
  0       done; of run: the command's own status, whatever it is
  1       the answer is no: doctor or verify found something, kill found nobody
          to terminate or was told no; the server refused a statement
  64      wrong usage
  69      the server can't be reached, is shutting down or has no room
  71      the system can't start a process
  74      stdout can't be written
  75      run: another session holds the lock (--conflict-exit-code)
  77      wrong password, role or privilege
  78      settings with which no lock can be held: wrong connection settings, a
          pooler, a standby, another engine; fencing is not installed
  79      run, lead: the lock was lost before the command had ended
  126     run: the command can't be executed
  127     run: the command was not found
  128+n   ended by signal n, before the command had started or with it`

const rootExample = `  pgadvisory run nightly-export -- /usr/local/bin/export
  pgadvisory run --no-wait --fence nightly-export -- ./export.sh
  pgadvisory lead scheduler -- ./scheduler
  pgadvisory ls
  pgadvisory doctor`

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "pgadvisory",
		Short:         "flock for PostgreSQL: run a command while holding an advisory lock",
		Long:          rootLong,
		Example:       rootExample,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		text := cmd.Long
		if text == "" {
			text = cmd.Short
		}
		_, _ = fmt.Fprintf(cmd.OutOrStdout(), "%s\n\n%s", strings.TrimSpace(text), plainFlags(cmd.UsageString()))
	})
	flags := root.PersistentFlags()
	flags.StringVar(&a.dsn, "dsn", "", "the database to connect to, as a URL or keywords and values; no password")
	flags.BoolVar(&a.sessionPooler, "session-pooler", false, "allow a pooler in session mode between here and the server")
	root.AddGroup(
		&cobra.Group{ID: groupLocks, Title: "Locks:"},
		&cobra.Group{ID: groupFencing, Title: "Fencing:"},
		&cobra.Group{ID: groupHelp, Title: "Help:"},
	)
	root.SetHelpCommandGroupID(groupHelp)
	root.SetCompletionCommandGroupID(groupHelp)
	root.AddCommand(
		a.run(), a.lead(), a.ls(), a.key(), a.kill(),
		a.migrate(), a.guard(), a.guardBy(), a.unguard(), a.verify(), a.grant(), a.revoke(),
		a.doctor(), a.man(),
	)
	return root
}

const (
	groupLocks   = "locks"
	groupFencing = "fencing"
	groupHelp    = "help"
)

// version is that of the module, as go install or go build has recorded it.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
