package connect_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/connect"
)

const secret = "s3cret"

func TestConfig_refusesAPasswordOnTheCommandLine(t *testing.T) {
	t.Parallel()
	for _, dsn := range []string{
		"postgres://app:" + secret + "@db/app",
		"postgresql://app:" + secret + "@db1:1,db2:2/app?sslmode=require",
		"postgres://app:" + secret + "%zz@db/app", // not valid
		"postgres://db/app?user=app&password=" + secret,
		"postgres://db/app?user=app&p%61ssword=" + secret,
		"postgres://db/app?sslpassword=" + secret,
		"host=db password=" + secret,
		"PASSWORD = '" + secret + "' host=db",
		"host='db'password=" + secret,
		"sslpassword=" + secret,
	} {
		_, err := connect.Config(dsn)
		require.ErrorIs(t, err, connect.ErrPassword, dsn)
		require.NotContains(t, err.Error(), secret)
	}
	for _, dsn := range []string{
		"postgres://app@db/app",
		"postgres://app:@db:5432/app?sslmode=disable&pool_max_conns=7",
		"host=db user=app dbname=app passfile=/nowhere",
		"host=/var/run/postgresql",
	} {
		config, err := connect.Config(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, int32(1), config.MaxConns)
		require.Equal(t, connect.Application, config.ConnConfig.RuntimeParams["application_name"])
	}
}

func TestConfig_takesTheFirstSourceThatIsGiven(t *testing.T) {
	folder := t.TempDir()
	services, passwords := filepath.Join(folder, "services"), filepath.Join(folder, "passwords")
	require.NoError(t, os.WriteFile(services, []byte("[nightly]\nhost=from-service\nuser=app\ndbname=app\n"), 0o600))
	require.NoError(t, os.WriteFile(passwords, []byte("from-service:5432:app:app:"+secret+"\n"), 0o600))
	t.Setenv("PGSERVICEFILE", services)
	t.Setenv("PGPASSFILE", passwords)
	t.Setenv("PGHOST", "from-libpq")
	t.Setenv("PGAPPNAME", "nightly")
	t.Setenv(connect.DatabaseURL, "")
	host := func(dsn string) string {
		config, err := connect.Config(dsn)
		require.NoError(t, err)
		require.Equal(t, "nightly", config.ConnConfig.RuntimeParams["application_name"])
		return config.ConnConfig.Host
	}
	require.Equal(t, "from-libpq", host(""))
	t.Setenv(connect.DatabaseURL, "postgres://app:"+secret+"@from-url/app")
	require.Equal(t, "from-url", host(""))
	require.Equal(t, "from-flag", host("host=from-flag"))

	config, err := connect.Config("service=nightly")
	require.NoError(t, err)
	require.Equal(t, "from-service", config.ConnConfig.Host)
	require.Equal(t, secret, config.ConnConfig.Password, "of the password file")
	t.Setenv(connect.DatabaseURL, "")
	t.Setenv("PGSERVICE", "nightly")
	require.Equal(t, "from-service", host(""))
}

// What is broken may hide a password from whoever wants to blot it out.
func TestConfig_errorsNeverShowAPassword(t *testing.T) {
	for _, url := range []string{
		"postgres://app:" + secret + "%zz@db/app",
		"postgres://app:sec:" + secret + "@db:port/app",
		"postgres://app:" + secret + "@db:99999999/app",
		"postgres://app:" + secret + "@db/app?connect_timeout=" + "x",
		"postgres://app:" + secret + "@db/app?sslmode=x",
		"postgres://app:" + secret + "@db/app?pool_max_conns=x",
		"app:" + secret + "@db",
		"host=db password=" + secret + " port=x",
		"host=db password='" + secret,
		"host db password=" + secret,
		"postgres//app:" + secret + "@db",
	} {
		t.Setenv(connect.DatabaseURL, url)
		_, err := connect.Config("")
		require.ErrorIs(t, err, connect.ErrConfig, url)
		require.NotContains(t, err.Error(), secret)
		t.Log(err)
	}
	t.Setenv(connect.DatabaseURL, "service=nowhere")
	t.Setenv("PGSERVICEFILE", "/nowhere")
	_, err := connect.Config("")
	require.ErrorContains(t, err, "/nowhere")
}
