package pgtest_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestStartWith_setsWhatItIsTold(t *testing.T) {
	t.Parallel()
	conn := pgtest.StartWith(t, "max_connections=20", "listen_addresses=127.0.0.1,127.0.0.2").Conn(t)
	for name, want := range map[string]string{
		"max_connections":           "20",
		"listen_addresses":          "127.0.0.1,127.0.0.2",
		"max_prepared_transactions": "5", // as every server
	} {
		var value string
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&value))
		require.Equal(t, want, value, name)
	}
	var migrated bool
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT to_regnamespace('fencing') IS NOT NULL`).Scan(&migrated))
	require.True(t, migrated)
}
