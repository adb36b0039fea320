//go:build unix

package main

import (
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/traptest"
)

// trapped are the subcommands, in an order in which each has something to do, each
// after its status.
var trapped = []string{
	"0 migrate up",
	"0 migrate status",
	"0 doctor",
	"0 guard public.exports nightly-export",
	"0 guard-by public.orders tenant --prefix tenant:",
	"0 guard-by public.moods tenant",
	"0 verify",
	"0 grant pg_monitor",
	"0 doctor",
	"0 run --fence nightly-export -- true",
	"0 run --fence --no-wait nightly-export -- true",
	"0 run nightly-export -- true",
	"0 run --shared nightly-export -- true",
	"0 run --limit 2 nightly-export -- true",
	"0 run --limit 2 --no-wait nightly-export -- true",
	"0 ls",
	"0 ls nightly-export",
	"0 key nightly-export",
	`79 run held -- sh -c 'pgadvisory ls held && pgadvisory kill --yes held; sleep 60'`,
	"0 verify --json",
	"0 revoke pg_monitor",
	"0 unguard public.exports",
	"0 unguard public.orders",
	"0 unguard public.moods",
	"0 migrate down --yes",
	"1 migrate status",
	"0 doctor",
}

// A superuser runs nothing of what others have put in the way of PostgreSQL's own
// functions, operators, types, relations and casts.
func TestCommand_runsNothingOfOthers(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"in front": traptest.First, "fitting better": "public"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			dsn, err := url.Parse(db.DSN)
			require.NoError(t, err)
			query := dsn.Query()
			query.Set("search_path", path)
			dsn.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // pgx leaves a + as it is
			env := environ(dsn.String(), "PATH="+binDir(t)+string(os.PathListSeparator)+os.Getenv("PATH"))
			run := func(line string) {
				t.Helper()
				want, arguments, _ := strings.Cut(line, " ")
				cmd := exec.CommandContext(t.Context(), "sh", "-c", program+" "+arguments)
				cmd.Env = env
				out, _ := cmd.CombinedOutput()
				require.Equal(t, want, strconv.Itoa(cmd.ProcessState.ExitCode()), "%s: %s", line, out)
			}
			run("0 migrate down --yes")
			traptest.Set(t, db)
			traptest.Exec(t, db, `CREATE TABLE public.exports (day text, fencing_token bigint);
				CREATE TABLE public.orders (tenant int, note text) PARTITION BY LIST (tenant); CREATE TABLE public.orders1 PARTITION OF public.orders DEFAULT;
				CREATE TABLE public.moods (tenant public.mood)`)
			for _, line := range trapped {
				run(line)
			}
			require.Empty(t, traptest.Fired(t, db))
		})
	}
}
