package pgscript_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pgadvisory/pgadvisory/internal/pgscript"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// connect opens a session that is closed before the server is.
func connect(t *testing.T, peer *pgscript.Server, configure ...func(*pgx.ConnConfig)) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(peer.DSN())
	require.NoError(t, err)
	for _, f := range configure {
		f(config)
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		conn.Close(ctx)
		peer.Close()
		<-conn.PgConn().CleanupDone()
	})
	return conn
}

func get[T any](t *testing.T, conn *pgx.Conn, sql string, args ...any) T {
	t.Helper()
	var v T
	require.NoError(t, conn.QueryRow(t.Context(), sql, args...).Scan(&v))
	return v
}
