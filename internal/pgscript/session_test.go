package pgscript_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgscript"
)

var modes = []pgx.QueryExecMode{
	pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
	pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
}

func TestServe_emulatesASessionInEachMode(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			conn := connect(t, pgscript.Serve(t), func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = mode })
			for range 2 { // the second time with what is cached
				require.False(t, get[bool](t, conn, "SELECT pg_catalog.pg_advisory_unlock($1::bigint)", int64(7)))
				require.True(t, get[bool](t, conn, "SELECT pg_try_advisory_lock($1::bigint)", int64(7)))
				require.True(t, get[bool](t, conn, "SELECT pg_try_advisory_lock_shared($1::int, $2::int)", int32(1), int32(2)))
				require.True(t, get[bool](t, conn, "SELECT pg_advisory_unlock($1::bigint)", int64(7)))
				_, err := conn.Exec(t.Context(), "SELECT pg_advisory_lock($1::bigint)", int64(7))
				require.NoError(t, err)
				_, err = conn.Exec(t.Context(), "SELECT pg_advisory_unlock_all()")
				require.NoError(t, err)
			}

			var pid uint32
			var recovering bool
			var version string
			row := conn.QueryRow(t.Context(), "SELECT pg_backend_pid(), pg_is_in_recovery(), version()")
			require.NoError(t, row.Scan(&pid, &recovering, &version))
			require.Equal(t, conn.PgConn().PID(), pid)
			require.False(t, recovering)
			require.Contains(t, version, "PostgreSQL")

			require.NoError(t, conn.Ping(t.Context()))
			_, err := conn.Exec(t.Context(), "SELECT frobnicate()")
			require.ErrorContains(t, err, "no answer to: SELECT frobnicate()")
		})
	}
}

func TestServe_infersTheTypesOfParameters(t *testing.T) {
	t.Parallel()
	var args []any
	conn := connect(t, pgscript.Serve(t, func(q pgscript.Query) *pgscript.Answer {
		if !q.Describing {
			args = q.Args
		}
		return pgscript.Row(pgscript.Bool(true))
	}))
	for sql, want := range map[string][]any{
		"SELECT pg_try_advisory_lock($1)":         {int64(5)},
		"SELECT pg_try_advisory_lock($1, $2)":     {int32(5), int32(6)},
		"SELECT f($2::bool, $1::pg_catalog.text)": {"x", true},
		"SELECT f($1)":               {"x"},
		"SELECT f($1::bigint[], $2)": {[]int64{1, 2}, nil},
	} {
		require.True(t, get[bool](t, conn, sql, want...), sql)
		require.Equal(t, fmt.Sprint(want), fmt.Sprint(args), sql)
	}
}

func TestServe_followsTransactions(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgscript.Serve(t, pgscript.On("boom", pgscript.Fail("22012", "division by zero"))))
	status := func() string { return string(conn.PgConn().TxStatus()) }

	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	require.Equal(t, "T", status())
	_, err = tx.Exec(t.Context(), "boom")
	require.ErrorContains(t, err, "22012")
	require.Equal(t, "E", status())
	_, err = tx.Exec(t.Context(), "SELECT 1")
	require.ErrorContains(t, err, "25P02")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "I", status())
	require.Equal(t, 1, get[int](t, conn, "SELECT 1"))
}

func TestServe_answersEachStatementOfAScript(t *testing.T) {
	t.Parallel()
	conn := connect(t, pgscript.Serve(t, pgscript.On("boom", pgscript.Fail("22012", "division by zero"))))
	results, err := conn.PgConn().Exec(t.Context(), `BEGIN; SET LOCAL x = 'a;b'; -- a; comment
		SELECT pg_try_advisory_lock('5'::bigint), 2; DO $pg$BEGIN PERFORM 1; END$pg$; COMMIT;`).ReadAll()
	require.NoError(t, err)
	var tags []string
	for _, result := range results {
		tags = append(tags, result.CommandTag.String())
	}
	require.Equal(t, []string{"BEGIN", "SET", "SELECT 1", "DO", "COMMIT"}, tags)
	require.Equal(t, [][]byte{[]byte("t"), []byte("2")}, results[2].Rows[0])

	results, err = conn.PgConn().Exec(t.Context(), "SELECT 1; boom; SELECT 2").ReadAll()
	require.ErrorContains(t, err, "22012")
	require.Len(t, results, 1)
}

func TestServe_worksWithAPoolAndABatch(t *testing.T) {
	t.Parallel()
	peer := pgscript.Serve(t)
	pool, err := pgxpool.New(t.Context(), peer.DSN())
	require.NoError(t, err)
	t.Cleanup(pool.Close)

	batch := &pgx.Batch{}
	batch.Queue("SELECT pg_try_advisory_lock($1::bigint)", int64(1))
	batch.Queue("SELECT pg_advisory_unlock($1::bigint)", int64(1))
	results := pool.SendBatch(t.Context(), batch)
	for range 2 {
		var done bool
		require.NoError(t, results.QueryRow().Scan(&done))
		require.True(t, done)
	}
	require.NoError(t, results.Close())
	require.Equal(t, 1, peer.Sessions())
}

func TestServer_Close_endsTheSessions(t *testing.T) {
	t.Parallel()
	peer := pgscript.Serve(t)
	conn := connect(t, peer)
	require.Equal(t, 1, peer.Open())
	peer.Close()
	require.Zero(t, peer.Open())
	require.Error(t, conn.Ping(t.Context()))
	_, err := pgx.Connect(t.Context(), peer.DSN())
	require.Error(t, err)
	peer.Close()
}
