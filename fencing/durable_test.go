package fencing_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// undurable are ways in which a caller of fencing.issue turns synchronous_commit off
// before the commit.
var undurable = map[string][]string{
	"function around it": {`SELECT issue_off()`},
	"function around it, in a session where it is off": {`SET synchronous_commit = off`, `SELECT issue_on()`},
	"SET LOCAL after it":               {`BEGIN`, `SELECT fencing.issue('nightly')`, `SET LOCAL synchronous_commit = off`, `COMMIT`},
	"SET after it":                     {`BEGIN`, `SELECT fencing.issue('nightly')`, `SET synchronous_commit = off`, `COMMIT`},
	"RESET after it":                   {`SET synchronous_commit = off`, `BEGIN`, `SELECT fencing.issue('nightly')`, `RESET synchronous_commit`, `SET synchronous_commit = local`, `SET synchronous_commit = off`, `COMMIT`},
	"in a savepoint that is released":  {`BEGIN`, `SAVEPOINT s`, `SELECT fencing.issue('nightly')`, `RELEASE s`, `SET LOCAL synchronous_commit = off`, `COMMIT`},
	"procedure that commits":           {`CALL issue_and_commit()`},
	"set_config in the same statement": {`SELECT set_config('synchronous_commit', 'off', false) FROM (SELECT fencing.issue('nightly') OFFSET 0) x`},
	"deferred trigger of the caller":   {`BEGIN`, `INSERT INTO mine VALUES (1)`, `SELECT fencing.issue('nightly')`, `COMMIT`},
}

const undurableSQL = `CREATE FUNCTION issue_off() RETURNS bigint LANGUAGE sql SET synchronous_commit = off AS $$ SELECT fencing.issue('nightly') $$;
	CREATE FUNCTION issue_on() RETURNS bigint LANGUAGE sql SET synchronous_commit = on AS $$ SELECT fencing.issue('nightly') $$;
	CREATE PROCEDURE issue_and_commit() LANGUAGE plpgsql AS $$ BEGIN
		PERFORM fencing.issue('nightly');
		PERFORM set_config('synchronous_commit', 'off', true);
		COMMIT;
	END $$;
	CREATE TABLE mine (id int);
	CREATE FUNCTION off() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config('synchronous_commit', 'off', true); RETURN NULL; END $$;
	CREATE CONSTRAINT TRIGGER off AFTER INSERT ON mine DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION off()`

// The log's writer sleeps, so that a commit that does not wait for the disk is lost when
// the server crashes.
func TestIssue_isDurableWhateverItsCallerSets(t *testing.T) {
	t.Parallel()
	server := pgtest.StartWith(t, "wal_writer_delay=10s", "checkpoint_timeout=1h")
	ctx, cancel := context.WithTimeout(t.Context(), 4*limit)
	defer cancel()
	setup, err := pgx.Connect(ctx, server.DSN)
	require.NoError(t, err)
	_, err = setup.Exec(ctx, undurableSQL)
	require.NoError(t, err)
	require.NoError(t, setup.Close(ctx))
	highest := func() (mark fencing.Token) {
		t.Helper()
		for {
			conn, err := pgx.Connect(ctx, server.DSN)
			if err == nil {
				err = conn.QueryRow(ctx, `SELECT coalesce(max(mark), 0) FROM fencing.resource`).Scan(&mark)
				_ = conn.Close(ctx)
			}
			if err == nil {
				return mark
			}
			waitAMoment(ctx)
			require.NoError(t, ctx.Err(), "waiting for the server: %v", err)
		}
	}
	crash := func(statements []string) {
		t.Helper()
		conn, err := pgx.Connect(ctx, server.DSN)
		require.NoError(t, err)
		defer func() { _ = conn.Close(ctx) }() // it is gone
		for _, statement := range statements {
			_, err := conn.Exec(ctx, statement)
			require.NoError(t, err, statement)
		}
		killBackend(ctx, t, server.DSN)
	}
	for name, statements := range undurable {
		before := highest()
		crash(statements)
		require.Greater(t, highest(), before, name)
	}
	// It is a test: what is not durable is lost.
	before := highest()
	crash([]string{`SET synchronous_commit = off`, `INSERT INTO fencing.known_resource VALUES ('lost')`})
	require.Equal(t, before, highest())
	conn, err := pgx.Connect(ctx, server.DSN)
	require.NoError(t, err)
	defer func() { _ = conn.Close(ctx) }()
	require.False(t, one[bool](t, conn, `SELECT EXISTS (SELECT FROM fencing.known_resource WHERE name = 'lost')`))
}
