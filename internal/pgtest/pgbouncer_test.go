package pgtest_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

const sqlBackend = `SELECT pg_backend_pid()`

func TestPgBouncer_inTransactionModeGivesEachTransactionAnyBackend(t *testing.T) {
	t.Parallel()
	client, other := throughPgBouncer(t, "transaction")
	first := backendOf(t, client)
	require.NotEqual(t, int(client.PgConn().PID()), first, "the handshake's PID is PgBouncer's invention")

	// Idle server connections are used last in, first out.
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	require.Equal(t, first, backendOf(t, other))
	require.NotEqual(t, first, backendOf(t, client))
	require.NoError(t, tx.Rollback(t.Context()))
}

func TestPgBouncer_inSessionModeGivesASessionOneBackend(t *testing.T) {
	t.Parallel()
	client, other := throughPgBouncer(t, "session")
	first := backendOf(t, client)
	tx, err := other.Begin(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, first, backendOf(t, other))
	require.Equal(t, first, backendOf(t, client))
	require.NoError(t, tx.Rollback(t.Context()))
}

func TestPgBouncer_inStatementModeRefusesTransactions(t *testing.T) {
	t.Parallel()
	client, _ := throughPgBouncer(t, "statement")
	_, err := client.Exec(t.Context(), `BEGIN`)
	require.ErrorContains(t, err, "not allowed in statement pooling mode")
}

func TestPgBouncer_takesSettings(t *testing.T) {
	t.Parallel()
	client, other := throughPgBouncer(t, "transaction", "default_pool_size = 1", "query_wait_timeout = 1")
	tx, err := client.Begin(t.Context())
	require.NoError(t, err)
	_, err = other.Exec(t.Context(), sqlBackend)
	require.ErrorContains(t, err, "query_wait_timeout")
	require.NoError(t, tx.Rollback(t.Context()))
}

func TestDatabase_BehindPgBouncerIsReachedAsAnyUser(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	role := "pooled_" + db.Name
	admin := db.Conn(t)
	_, err := admin.Exec(t.Context(), "CREATE ROLE "+role+" LOGIN PASSWORD 'secret'; ALTER ROLE "+role+" SET lock_timeout = '17s'")
	require.NoError(t, err)
	t.Cleanup(func() {
		_, err := admin.Exec(context.Background(), "DROP ROLE "+role)
		require.NoError(t, err)
	})

	as := func(c *pgx.ConnConfig) { c.User, c.Password = role, "secret" }
	conn := db.BehindPgBouncer(t).Conn(t, as)
	var database, user, timeout string
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_database(), session_user, current_setting('lock_timeout')").
		Scan(&database, &user, &timeout))
	require.Equal(t, []string{db.Name, role, "17s"}, []string{database, user, timeout})
	require.NotEqual(t, int(conn.PgConn().PID()), backendOf(t, conn), "there is a pooler")

	config, err := pgx.ParseConfig(db.BehindPgBouncer(t).DSN)
	require.NoError(t, err)
	config.User, config.Password = role, "wrong"
	_, err = pgx.ConnectConfig(t.Context(), config)
	require.Error(t, err)
	config.Password, config.RuntimeParams["lock_timeout"] = "secret", "1s"
	_, err = pgx.ConnectConfig(t.Context(), config)
	require.ErrorContains(t, err, "unsupported startup parameter")
}

// throughPgBouncer returns two sessions of one pooler. They use the simple
// protocol, since prepared statements belong to a backend.
func throughPgBouncer(t *testing.T, mode string, settings ...string) (client, other *pgx.Conn) {
	t.Helper()
	pooled := *pgtest.New(t)
	pooled.DSN = pooled.PgBouncer(t, mode, settings...)
	simple := func(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol }
	return pooled.Conn(t, simple), pooled.Conn(t, simple)
}

func backendOf(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	var pid int
	require.NoError(t, conn.QueryRow(t.Context(), sqlBackend).Scan(&pid))
	return pid
}
