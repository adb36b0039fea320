//go:build unix

package pgtest_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// startedVar makes TestMain_startedInAnyWay print what its process can see.
const startedVar = "PGADVISORY_TEST_STARTED"

// However the tests were started: what they start has no signal ignored and no
// variable of libpq.
func TestMain_startedInAnyWay(t *testing.T) {
	t.Parallel()
	const report = `trap 'echo hup' HUP; trap 'echo int' INT; trap 'echo tstp' TSTP; kill -HUP $$; kill -INT $$; kill -TSTP $$; env | grep ^PG | sort`
	if os.Getenv(startedVar) != "" {
		out, err := exec.Command("sh", "-c", report).Output()
		require.NoError(t, err)
		t.Logf("REPORT %s", strings.Join(strings.Fields(string(out)), " "))
		return
	}
	for name, c := range map[string]struct{ url, want string }{
		"without a given server": {"", "REPORT hup int tstp PGADVISORY_TEST_STARTED=1"},
		"with a given server": {
			"postgres:///nowhere", "REPORT hup int tstp PGADVISORY_TEST_STARTED=1 PGHOST=nowhere PGPASSWORD=secret PGSSLMODE=disable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command("sh", "-c", `trap '' HUP INT TSTP; exec "$@"`, "sh", os.Args[0], "-test.run", "^TestMain_startedInAnyWay$", "-test.v")
			cmd.Env = []string{
				"PATH=" + os.Getenv("PATH"), startedVar + "=1", "DATABASE_URL=" + c.url, "PGHOST=nowhere", "PGPASSWORD=secret",
				"PGSSLMODE=disable", "PGDATABASE=other", "PGOPTIONS=-c statement_timeout=1", "PGAPPNAME=x", "PGTZ=UTC",
			}
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			_, got, found := strings.Cut(string(out), "REPORT")
			require.True(t, found, "%s", out)
			got, _, _ = strings.Cut(got, "\n")
			require.Equal(t, c.want, "REPORT"+got)
		})
	}
}
