package pgtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

const sqlDatabaseExists = `SELECT EXISTS (SELECT FROM pg_catalog.pg_database WHERE datname = $1)`

func TestNew_givesDatabasesThatAreIndependent(t *testing.T) {
	t.Parallel()
	one, two := pgtest.New(t), pgtest.New(t)
	require.NotEqual(t, one.Name, two.Name)

	for _, db := range []*pgtest.Database{one, two} {
		conn := db.Conn(t)
		var name string
		var locked bool
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT current_database()`).Scan(&name))
		require.Equal(t, db.Name, name)

		// Neither the lock nor the table may exist yet in the second one.
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT pg_try_advisory_lock(1)`).Scan(&locked))
		require.True(t, locked)
		_, err := conn.Exec(t.Context(), `CREATE TABLE mine ()`)
		require.NoError(t, err)
	}
}

// A database serves another test only if nobody could tell it from a new one.
//
//nolint:tparallel // each subtest must have ended, cleanup and all, before the rest
func TestNew_dropsWhatATestHasChanged(t *testing.T) {
	t.Parallel()
	observer := pgtest.New(t).Conn(t)
	for name, change := range map[string]string{
		"table":    "CREATE TABLE t ()",
		"mark":     "INSERT INTO fencing.resource VALUES ('x', 1)",
		"token":    "SELECT nextval('fencing.token')",
		"function": "CREATE OR REPLACE FUNCTION fencing.unguard(target regclass) RETURNS void LANGUAGE sql AS ''",
		"grant":    "GRANT USAGE ON SCHEMA fencing TO PUBLIC",
		"language": "REVOKE USAGE ON LANGUAGE plpgsql FROM PUBLIC",
		"schema":   "DROP SCHEMA fencing CASCADE",
	} {
		var database string
		t.Run(name, func(t *testing.T) {
			db := pgtest.New(t)
			database = db.Name
			_, err := db.Conn(t).Exec(t.Context(), change)
			require.NoError(t, err)
		})
		var exists bool
		require.NoError(t, observer.QueryRow(t.Context(), sqlDatabaseExists, database).Scan(&exists))
		require.False(t, exists, name)
	}
}

//nolint:tparallel // the subtest must have ended, cleanup and all, before the rest
func TestNew_throwsOutWhoIsStillConnected(t *testing.T) {
	t.Parallel()
	var left *pgx.Conn
	t.Run("user", func(t *testing.T) {
		left = pgtest.New(t).Conn(noCleanup{t})
		_, err := left.Exec(t.Context(), "SELECT pg_advisory_lock(1)")
		require.NoError(t, err)
	})
	require.Error(t, left.Ping(t.Context()))
}

func TestNew_canBeCalledByManyTestsAtOnce(t *testing.T) {
	t.Parallel()
	for i := range 16 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			require.NoError(t, pgtest.New(t).Conn(t).Ping(t.Context()))
		})
	}
}

func TestPool_reportsAConnectionThatIsNotReleased(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	conn, err := pool.Acquire(t.Context())
	require.NoError(t, err)

	require.ErrorContains(t, pgtest.ClosePool(pool, time.Millisecond), "1 connections acquired")
	conn.Release()
}

func TestLog_holdsTheLinesOfOneDatabase(t *testing.T) {
	t.Parallel()
	db, other := pgtest.New(t), pgtest.New(t)
	if db.Server.Provider() == "url" {
		_, err := db.Server.Log(t.Context())
		require.ErrorIs(t, err, pgtest.ErrNoLog)
		return
	}
	_, err := other.Conn(t).Exec(t.Context(), `SELECT 1 / 0 AS elsewhere`)
	require.Error(t, err)
	_, err = db.Conn(t).Exec(t.Context(), "SELECT 1 / 0\nAS second_line")
	require.Error(t, err)

	require.Eventually(t, func() bool { return other.Log(t) != "" && db.Log(t) != "" }, time.Minute, 20*time.Millisecond)
	log := db.Log(t)
	require.Contains(t, log, "division by zero")
	require.Contains(t, log, "second_line")
	require.NotContains(t, log, "elsewhere")
}

func TestLog_takesTheOtherDatabasesNameInAMessageForWhatItIs(t *testing.T) {
	t.Parallel()
	const log = "" +
		"2026-01-01 00:00:00.000 UTC [1] LOG:  ready\n" +
		"2026-01-01 00:00:01.000 UTC [2] [one] ERROR:  first\n" +
		"\tcontinued\n" +
		"2026-01-01 00:00:02.000 UTC [3] [two] ERROR:  about one\n" +
		"\tcontinued\n" +
		"2026-01-01 00:00:03.000 UTC [2] [one] STATEMENT:  last\n"
	require.Equal(t, ""+
		"2026-01-01 00:00:01.000 UTC [2] [one] ERROR:  first\n"+
		"\tcontinued\n"+
		"2026-01-01 00:00:03.000 UTC [2] [one] STATEMENT:  last\n", pgtest.LinesOf(log, "one"))
}

// noCleanup is a test that nothing is tidied up after.
type noCleanup struct{ *testing.T }

func (noCleanup) Cleanup(func()) {}
