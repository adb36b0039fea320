package advisory_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestInspect_showsThisDatabaseOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := pgtest.New(t).Conn(t)
	exec(t, other, "SELECT pg_advisory_lock(7)")
	require.Empty(t, b.inspect(t))
	require.Empty(t, b.inspect(t, advisory.ID(7)))
	statuses, err := advisory.Inspect(t.Context(), other)
	require.NoError(t, err)
	require.Len(t, statuses, 1)
}

// Relations, tuples and the like are locked all the time.
func TestInspect_showsAdvisoryLocksOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tx := begin(t, b.raw)
	_, err := tx.Exec(t.Context(), "CREATE TABLE locked (); LOCK TABLE pg_class IN SHARE MODE")
	require.NoError(t, err)
	require.Empty(t, b.inspect(t))
	require.NoError(t, advisory.TryLockTx(t.Context(), tx, advisory.ID(7)))
	statuses, err := advisory.Inspect(t.Context(), tx, advisory.ID(7))
	require.NoError(t, err)
	require.Len(t, statuses, 1)
	require.Equal(t, tx.Conn().PgConn().PID(), statuses[0].PID)
	require.Equal(t, "active", statuses[0].State, "it is this query's session")
}

func TestInspect_showsPreparedTransactions(t *testing.T) {
	t.Parallel()
	b := setupWith(t, pgtest.PreparedTransactions)
	gid := rand.Text()
	tx := begin(t, b.raw)
	require.NoError(t, advisory.LockTx(t.Context(), tx, advisory.ID(7)))
	_, err := tx.Exec(t.Context(), "CREATE TABLE a (); SAVEPOINT s; CREATE TABLE b (); RELEASE s; PREPARE TRANSACTION '"+gid+"'")
	require.NoError(t, err)
	waiter := b.session(t)
	done := make(chan error, 1)
	go func() {
		_, err := waiter.Exec(context.Background(), "SELECT pg_advisory_lock(7)")
		done <- err
	}()
	b.eventually(t, "a session waits", func() bool { return b.waiting(t) == 1 })

	statuses := b.inspect(t, advisory.ID(7))
	require.Len(t, statuses, 2)
	holder := statuses[0]
	require.True(t, holder.Granted)
	require.Zero(t, holder.PID)
	require.Equal(t, gid, holder.Prepared)
	require.Equal(t, b.raw.Config().ConnConfig.User, holder.User)
	require.False(t, holder.StateChange.IsZero())
	require.Zero(t, holder.BackendStart)
	require.Zero(t, holder.QueryAge())
	require.Equal(t, []uint32{0}, statuses[1].BlockedBy)

	exec(t, b.session(t), "ROLLBACK PREPARED '"+gid+"'")
	require.NoError(t, <-done)
}

// loginRole makes a role, which the whole server sees, until the test's end.
func (b *bundle) loginRole(t *testing.T) string {
	t.Helper()
	conn := b.session(t)
	name := "pgtest_role_" + strings.ToLower(rand.Text())
	exec(t, conn, "CREATE ROLE "+name)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), "DROP OWNED BY "+name+"; DROP ROLE "+name)
		require.NoError(t, err)
	})
	return name
}

func TestInspect_hidesWhatTheCallerMayNotSee(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.db.Conn(t, application("one"))
	exec(t, holder, "SELECT pg_advisory_lock(7)")
	waiter := b.db.Conn(t, application("two"))
	done := make(chan error, 1)
	go func() {
		_, err := waiter.Exec(context.Background(), "SELECT pg_advisory_lock(7)")
		done <- err
	}()
	b.eventually(t, "a session waits", func() bool { return b.waiting(t) == 1 })

	role := b.loginRole(t)
	observer := b.db.Conn(t, func(c *pgx.ConnConfig) { c.RuntimeParams["role"] = role })
	statuses, err := advisory.Inspect(t.Context(), observer)
	require.NoError(t, err)
	require.Len(t, statuses, 2)
	for i, pid := range []uint32{holder.PgConn().PID(), waiter.PgConn().PID()} {
		s := statuses[i]
		require.Equal(t, pid, s.PID)
		require.Equal(t, advisory.ID(7), s.Key)
		require.Equal(t, b.raw.Config().ConnConfig.User, s.User)
		require.Equal(t, []string{"one", "two"}[i], s.Application, "the server shows it to everybody")
		require.Empty(t, s.State)
		require.False(t, s.ClientAddr.IsValid())
		require.Zero(t, s.BackendStart)
		require.Zero(t, s.QueryStart)
		require.Zero(t, s.StateChange)
		require.Zero(t, s.QueryAge())
	}
	require.Equal(t, []uint32{holder.PgConn().PID()}, statuses[1].BlockedBy)

	exec(t, b.session(t), "GRANT pg_read_all_stats TO "+role)
	statuses, err = advisory.Inspect(t.Context(), observer)
	require.NoError(t, err)
	require.Equal(t, "idle", statuses[0].State)
	require.True(t, statuses[0].ClientAddr.IsValid())
	exec(t, holder, "SELECT pg_advisory_unlock(7)")
	require.NoError(t, <-done)
}

// A role's search_path may put functions and operators of the same name first.
func TestInspect_callsTheServersFunctions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.session(t), `CREATE SCHEMA evil;
		CREATE VIEW evil.pg_locks AS SELECT 1 AS pid;
		CREATE FUNCTION evil.lies(bigint, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 42';
		CREATE OPERATOR evil.| (FUNCTION = evil.lies, LEFTARG = bigint, RIGHTARG = bigint);
		CREATE FUNCTION evil.pg_blocking_pids(int) RETURNS int[] LANGUAGE sql AS 'SELECT ARRAY[42]';
		CREATE FUNCTION evil.current_database() RETURNS name LANGUAGE sql AS 'SELECT name ''none'''`)
	conn := b.db.Conn(t, func(c *pgx.ConnConfig) { c.RuntimeParams["search_path"] = "evil, pg_catalog" })
	exec(t, conn, "SELECT pg_advisory_lock(7)")
	statuses, err := advisory.Inspect(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, []advisory.Key{advisory.ID(7)}, keysOf(statuses))
}

// Nobody's settings change what is shown.
func TestInspect_readsTimesInAnyStyle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder, waiter := begin(t, b.raw), b.session(t)
	require.NoError(t, advisory.LockTx(t.Context(), holder, advisory.ID(7)))
	done := make(chan error, 1)
	go func() {
		_, err := waiter.Exec(context.Background(), "SELECT pg_advisory_lock(7)")
		done <- err
	}()
	b.eventually(t, "a session waits", func() bool { return b.waiting(t) == 1 })
	var want advisory.Status
	b.eventually(t, "the server says since when", func() bool {
		want = b.inspect(t)[1]
		return b.db.Server.Version() < 140000 || !want.WaitStart.IsZero()
	})
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeSimpleProtocol} {
		observer := b.db.Conn(t, func(c *pgx.ConnConfig) {
			c.DefaultQueryExecMode = mode
			c.RuntimeParams["timezone"] = "Asia/Kathmandu"
			c.RuntimeParams["intervalstyle"] = "sql_standard"
		})
		statuses, err := advisory.Inspect(t.Context(), observer)
		require.NoError(t, err)
		require.True(t, want.WaitStart.Equal(statuses[1].WaitStart))
		require.True(t, want.QueryStart.Equal(statuses[1].QueryStart))
	}
	require.NoError(t, holder.Rollback(t.Context()))
	require.NoError(t, <-done)
}
