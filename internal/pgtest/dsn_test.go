package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestURLDSN_meansTheSame(t *testing.T) {
	t.Parallel()
	for _, given := range []string{
		"postgres://u:p@127.0.0.1:5433/db?sslmode=disable&application_name=x",
		"host=127.0.0.1 port=5433 user=u password=p dbname=db sslmode=disable",
		"host=localhost user='u v' password='a b\\'c\\\\d/?#@' database=db application_name = x",
		"host=::1 user=u",
		"host=/var/run/postgresql user=u dbname=db connect_timeout=3",
		"host=a,b port=1,2 user=u",
		"user=u password=''",
	} {
		t.Run(given, func(t *testing.T) {
			t.Parallel()
			dsn, err := pgtest.URLDSN(given)
			require.NoError(t, err)
			want, err := pgx.ParseConfig(given)
			require.NoError(t, err)
			got, err := pgx.ParseConfig(dsn)
			require.NoError(t, err, dsn)
			requireSameTarget(t, want, got)

			dsn, err = pgtest.WithDatabase(dsn, "other")
			require.NoError(t, err)
			got, err = pgx.ParseConfig(dsn)
			require.NoError(t, err, dsn)
			want.Database = "other"
			requireSameTarget(t, want, got)
		})
	}
}

func TestURLDSN_keepsAURLAsGiven(t *testing.T) {
	t.Parallel()
	const given = "postgresql:///db?host=/tmp&user=u"
	dsn, err := pgtest.URLDSN(given)
	require.NoError(t, err)
	require.Equal(t, given, dsn)
}

func TestURLDSN_doesNotShowThePasswordInAnError(t *testing.T) {
	t.Parallel()
	_, err := pgtest.URLDSN("postgres://u:secret@host:port/db")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "secret")
}

func TestWithDatabase_replacesADatabaseInTheQuery(t *testing.T) {
	t.Parallel()
	dsn, err := pgtest.WithDatabase("postgres://h/?dbname=db&sslmode=disable", "other")
	require.NoError(t, err)
	require.Equal(t, "postgres://h/other?sslmode=disable", dsn)
}

func requireSameTarget(t *testing.T, want, got *pgx.ConnConfig) {
	t.Helper()
	require.Equal(t, want.Host, got.Host)
	require.Equal(t, want.Port, got.Port)
	require.Equal(t, want.User, got.User)
	require.Equal(t, want.Password, got.Password)
	require.Equal(t, want.Database, got.Database)
	require.Equal(t, want.RuntimeParams, got.RuntimeParams)
	require.Equal(t, want.ConnectTimeout, got.ConnectTimeout)
	require.Equal(t, want.TLSConfig == nil, got.TLSConfig == nil)
	require.Len(t, got.Fallbacks, len(want.Fallbacks))
}
