package pgtest

import (
	"os"
	"slices"
	"strings"
)

// How the tests were started is not to matter to what they start in their turn.

// connecting are the variables of libpq, or their beginnings, by which a
// DATABASE_URL may leave out whom to connect to and how.
var connecting = []string{"PGHOST", "PGPORT", "PGUSER", "PGPASS", "PGSERVICE", "PGSSL", "PGCHANNELBINDING", "PGREQUIREAUTH"}

// clearEnvironment removes the variables of libpq, which pgx, psql and pg_dump
// heed: but for those that say how to reach a given server.
func clearEnvironment() {
	given := os.Getenv(envURL) != ""
	for _, pair := range os.Environ() {
		name, _, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "PGADVISORY_") {
			continue
		}
		if given && slices.ContainsFunc(connecting, func(s string) bool { return strings.HasPrefix(name, s) }) {
			continue
		}
		_ = os.Unsetenv(name) // fails for names that can't be
	}
}
