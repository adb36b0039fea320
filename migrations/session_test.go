package migrations_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/migrations"
)

// settingsSQL tells all that a session has set, and where each value is from.
const settingsSQL = `SELECT string_agg(concat_ws('=', name, setting, source), E'\n' ORDER BY name) FROM pg_catalog.pg_settings
	WHERE source NOT IN ('default', 'configuration file', 'override')`

// The connection is the application's, and goes on to serve it.
func TestUpAndDown_leaveTheSessionAsItWas(t *testing.T) {
	t.Parallel()
	for name, configure := range map[string]func(*pgxpool.Config){
		"default": func(*pgxpool.Config) {},
		"of the connection": func(c *pgxpool.Config) {
			c.ConnConfig.RuntimeParams["search_path"] = `"$user", app, public`
		},
		"set by the application": func(c *pgxpool.Config) {
			c.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				_, err := conn.Exec(ctx, `SET search_path = "it's", "two words", public`)
				return err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			pool := b.db.Pool(t, func(c *pgxpool.Config) {
				c.MaxConns = 1
				configure(c)
			})
			pid, before := one[uint32](t, pool, `SELECT pg_backend_pid()`), one[string](t, pool, settingsSQL)
			requireAsBefore := func() {
				t.Helper()
				require.Equal(t, before, one[string](t, pool, settingsSQL))
				require.Equal(t, pid, one[uint32](t, pool, `SELECT pg_backend_pid()`))
			}
			require.NoError(t, migrations.Up(t.Context(), pool))
			requireAsBefore()
			require.NoError(t, migrations.Down(t.Context(), pool))
			requireAsBefore()

			// After an error too.
			b.exec(t, `CREATE SCHEMA fencing; CREATE TABLE fencing.job (id int)`)
			require.Error(t, migrations.Up(t.Context(), pool))
			requireAsBefore()
			b.exec(t, `DROP SCHEMA fencing CASCADE`)
			b.up(t)
			b.exec(t, `CREATE TABLE fencing.job (id int)`)
			requireCode(t, migrations.Down(t.Context(), pool), "2BP01")
			requireAsBefore()
		})
	}
}
