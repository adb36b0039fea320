package advisory_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// poolerEnv has the Lockers of all tests connect through a PgBouncer if it is
// "session", the mode of the pooler. Observers, and sessions that play other
// software, do without.
const poolerEnv = "PGADVISORY_TEST_POOLER"

func isPooled() bool { return os.Getenv(poolerEnv) != "" }

func checkPoolerEnv() error {
	switch mode := os.Getenv(poolerEnv); mode {
	case "", "session":
		return nil
	default:
		return fmt.Errorf("%s is %q; give session, the mode of the pooler, or leave it empty for none", poolerEnv, mode)
	}
}

// direct skips a test that a pooler leaves nothing of, and says why.
func direct(t *testing.T, why string) {
	t.Helper()
	if isPooled() {
		t.Skip("not through a pooler: " + why)
	}
}

// usualWay is how tests reach the database where they don't say it.
func usualWay(t *testing.T, db *pgtest.Database) *pgtest.Database {
	t.Helper()
	if isPooled() {
		return db.BehindPgBouncer(t)
	}
	return db
}

// usual is a config that allows for the way.
func (b *bundle) usual(config *advisory.Config) *advisory.Config {
	if !isPooled() || b.isOnPooler {
		return config
	}
	var pooled advisory.Config
	if config != nil {
		pooled = *config
	}
	pooled.SessionPooler = true
	return &pooled
}

// setting gives a pool's sessions a setting: at the start where the server gets
// to see it, and otherwise right after. An application_name all poolers pass on.
func setting(name, value string) func(*pgxpool.Config) {
	if !isPooled() || name == "application_name" {
		return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
	}
	return func(c *pgxpool.Config) {
		before := c.AfterConnect
		c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			if before != nil {
				if err := before(ctx, conn); err != nil {
					return err
				}
			}
			_, err := conn.Exec(ctx, "SELECT pg_catalog.set_config($1, $2, false)", pgx.QueryExecModeSimpleProtocol, name, value)
			return err
		}
	}
}

// pidOf is the server process of a session. To a client of a pooler the
// handshake told another number.
func pidOf(t *testing.T, session interface {
	QueryRow(context.Context, string, ...any) pgx.Row
},
) uint32 {
	t.Helper()
	var pid uint32
	require.NoError(t, session.QueryRow(t.Context(), "SELECT pg_catalog.pg_backend_pid()").Scan(&pid))
	return pid
}

// inUse is about a row of pg_stat_activity: a session that has a client. When its
// client is gone a session ends, or has been reset for a pooler's next client,
// with a statement that nobody else sends.
const inUse = "NOT (state = 'idle' AND query = 'DISCARD ALL')"
