package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestServer_Restart_keepsAddressAndContent(t *testing.T) {
	t.Parallel()
	for _, how := range []pgtest.Shutdown{pgtest.Fast, pgtest.Immediate} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			db := pgtest.StartWith(t)
			before := db.Conn(t)
			write(t, before, `CREATE TABLE seen (n int)`)
			write(t, before, `INSERT INTO seen VALUES (1)`)
			for range 3 {
				require.NoError(t, db.Server.Restart(t.Context(), how))
				require.Error(t, before.Ping(t.Context()))
				before = db.Conn(t)
				require.Equal(t, 1, count(t, before))
			}
		})
	}
}

// What was committed when a fast shutdown begins is on the standby when it ends.
func TestServer_Shutdown_sendsAllToTheStandby(t *testing.T) {
	t.Parallel()
	if err := pgtest.CheckStandby(t.Context()); err != nil {
		t.Skip(err)
	}
	primary := pgtest.StartWith(t)
	standby, err := pgtest.LaunchStandby(t.Context(), primary)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, standby.Close()) })
	conn := primary.Conn(t)
	write(t, conn, `CREATE TABLE seen (n int)`)
	require.NoError(t, standby.CatchUp(t.Context()))
	for range 100 {
		write(t, conn, `INSERT INTO seen VALUES (1)`)
	}
	dir := primary.Server.Dir()
	require.NoError(t, primary.Server.Shutdown(pgtest.Fast))
	require.NoDirExists(t, dir)
	_, err = pgx.Connect(t.Context(), primary.DSN)
	require.Error(t, err)

	require.NoError(t, standby.Promote(t.Context()))
	require.Equal(t, 100, count(t, standby.Conn(t)))
}
