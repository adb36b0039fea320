package pgtest_test

import (
	"io"
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// give makes another server the given one, by the URL that its user would write.
func give(t *testing.T, db *pgtest.Database) *pgtest.Server {
	t.Helper()
	u, err := url.Parse(db.DSN)
	require.NoError(t, err)
	u.RawQuery = ""
	t.Setenv("PGADVISORY_TEST_PROVIDER", "")
	t.Setenv("DATABASE_URL", u.String())
	server, err := pgtest.Start(t.Context(), io.Discard)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Close()) })
	return server
}

// A URL without sslmode stands for two ways to connect. Tests that put a proxy
// in between take one.
func TestStart_leavesOneWayToConnectToAGivenServer(t *testing.T) {
	server := give(t, pgtest.StartWith(t))
	config, err := pgx.ParseConfig(server.DSN())
	require.NoError(t, err)
	require.Empty(t, config.Fallbacks)
	require.Nil(t, config.TLSConfig, "this one has no TLS")
}

func TestNewWith_knowsWhatAGivenServerLacks(t *testing.T) {
	for setting, offered := range map[string]bool{"max_prepared_transactions=0": false, "max_prepared_transactions=1": true} {
		server := give(t, pgtest.StartWith(t, setting))
		for need, want := range map[pgtest.Need]bool{
			pgtest.PreparedTransactions: offered, pgtest.ReadableLog: false, pgtest.Passwords: true,
		} {
			meets, err := server.Meets(t.Context(), need)
			require.NoError(t, err)
			require.Equal(t, want, meets, "%s: %s", setting, need)
		}
	}
}

// With DATABASE_URL of an ordinary server it is another that serves these.
func TestNewWith_offersWhatIsNeeded(t *testing.T) {
	t.Parallel()
	db := pgtest.NewWith(t, pgtest.PreparedTransactions, pgtest.ReadableLog)
	conn := db.Conn(t)
	for _, sql := range []string{"BEGIN", "PREPARE TRANSACTION '" + db.Name + "'", "ROLLBACK PREPARED '" + db.Name + "'"} {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	_, err := conn.Exec(t.Context(), "ROLLBACK PREPARED 'nothing'")
	require.Error(t, err)
	require.Contains(t, db.Log(t), "ROLLBACK PREPARED 'nothing'")
}
