//go:build unix

package pgadvisory_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/childproc"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// migrator is a process that installs, or removes.
func migrator(ctx context.Context, in *bufio.Scanner, out io.Writer) error {
	pool, err := pgxpool.New(ctx, os.Getenv(dsnVar))
	if err != nil {
		return err
	}
	for in.Scan() {
		run := migrations.Up
		if in.Text() == "down" {
			run = migrations.Down
		}
		fmt.Fprintln(out, run(ctx, pool))
	}
	return in.Err()
}

// Whoever comes next finds all of a migration or nothing of it.
func TestMigrations_goOnAfterTheirProcessWasKilled(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		first, direction, tag, when string
	}{
		"in the first":  {"down", "up", "CREATE FUNCTION", `to_regprocedure('fencing.stamp(text, bigint, interval)') IS NOT NULL`},
		"in the second": {"down", "up", "CREATE FUNCTION", `to_regprocedure('fencing.verify()') IS NOT NULL`},
		"on the way down": {
			"up", "down", "DROP TABLE", `to_regprocedure('fencing.verify()') IS NULL`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			pool, observer := db.Pool(t), db.Conn(t)
			if c.first == "down" {
				require.NoError(t, migrations.Down(t.Context(), pool))
			}
			_, err := observer.Exec(t.Context(), `CREATE FUNCTION gate() RETURNS event_trigger LANGUAGE plpgsql AS
				$$ BEGIN IF `+c.when+` THEN PERFORM pg_advisory_xact_lock_shared(17, 17); END IF; END $$;
				CREATE EVENT TRIGGER gate ON ddl_command_start WHEN TAG IN ('`+c.tag+`') EXECUTE FUNCTION gate();
				SELECT pg_advisory_lock(17, 17)`)
			require.NoError(t, err)
			child := childproc.Start(t, "migrator", dsnVar+"="+db.DSN)
			child.Send(c.direction)
			waitForAtTheGate(t, observer)
			child.Kill()

			// The next one waits: the server does not know yet.
			result := make(chan error, 1)
			// Ends with Up; the test receives its result.
			go func() { result <- migrations.Up(t.Context(), pool) }()
			_, err = observer.Exec(t.Context(), `SELECT pg_advisory_unlock(17, 17)`)
			require.NoError(t, err)
			select {
			case err := <-result:
				require.NoError(t, err)
			case <-time.After(patience):
				require.FailNow(t, "Up does not return")
			}
			version, err := migrations.Version(t.Context(), pool)
			require.NoError(t, err)
			require.Equal(t, int64(2), version)
			report, err := fencing.Verify(t.Context(), pool)
			require.NoError(t, err)
			require.True(t, report.OK(), "%+v", report)
		})
	}
}

func waitForAtTheGate(t *testing.T, observer *pgx.Conn) {
	t.Helper()
	require.Eventually(t, func() bool {
		var waits bool
		err := observer.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND classid = 17
			AND NOT granted AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))`).Scan(&waits)
		return err == nil && waits
	}, patience, 10*time.Millisecond)
}
