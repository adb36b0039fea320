package pgtest_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestPair_standbyFollowsThePrimary(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	primary, standby := pair.Primary.Conn(t), pair.Standby.Conn(t)
	require.Equal(t, "off", primary.PgConn().ParameterStatus("in_hot_standby"))
	require.Equal(t, "on", standby.PgConn().ParameterStatus("in_hot_standby"))

	write(t, primary, `CREATE TABLE seen (n int)`)
	write(t, primary, `INSERT INTO seen VALUES (1)`)
	pair.CatchUp(t)
	require.Equal(t, 1, count(t, standby))
	_, err := standby.Exec(t.Context(), `INSERT INTO seen VALUES (2)`)
	require.ErrorContains(t, err, "read-only transaction")

	var migrated bool
	require.NoError(t, standby.QueryRow(t.Context(), `SELECT to_regnamespace('fencing') IS NOT NULL`).Scan(&migrated))
	require.True(t, migrated)
}

func TestPair_losesTheTailWhenReplicationWasCut(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	primary, standby := pair.Primary.Conn(t), pair.Standby.Conn(t)
	write(t, primary, `CREATE TABLE seen (n int)`)
	pair.CatchUp(t)

	pair.CutReplication(t)
	write(t, primary, `INSERT INTO seen VALUES (1)`)
	require.Equal(t, 0, count(t, standby))
	pair.RestoreReplication()
	pair.CatchUp(t)
	require.Equal(t, 1, count(t, standby))

	pair.CutReplication(t)
	write(t, primary, `INSERT INTO seen VALUES (2)`)
	require.NoError(t, pair.Primary.Server.Close())
	pair.Promote(t)
	require.Equal(t, 1, count(t, standby), "the same session, which the promotion doesn't end")
	write(t, standby, `INSERT INTO seen VALUES (3)`)
}

func write(t *testing.T, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func count(t *testing.T, conn *pgx.Conn) int {
	t.Helper()
	var n int
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT count(*) FROM seen`).Scan(&n))
	return n
}
