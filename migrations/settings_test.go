package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// What a role's settings are does not decide what is installed, nor whether it
// works for such a role.
func TestUp_isTheSameUnderEverySettingOfTheSession(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string]map[string]string{
		"all names quoted":           {"quote_all_identifiers": "on"},
		"strings of old":             {"standard_conforming_strings": "off", "escape_string_warning": "off"},
		"strict PL/pgSQL":            {"plpgsql.extra_errors": "all", "plpgsql.extra_warnings": "all"},
		"variables before columns":   {"plpgsql.variable_conflict": "use_variable"},
		"columns before variables":   {"plpgsql.variable_conflict": "use_column"},
		"no bodies are checked":      {"check_function_bodies": "off"},
		"an order that is different": {"DateStyle": "SQL, DMY", "IntervalStyle": "sql_standard", "bytea_output": "escape", "extra_float_digits": "-15"},
		"null is equal":              {"transform_null_equals": "on"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			pool := b.db.Pool(t, func(c *pgxpool.Config) {
				for name, value := range settings {
					c.ConnConfig.RuntimeParams[name] = value
				}
			})
			require.NoError(t, migrations.Up(t.Context(), pool))
			b.requireWhole(t)
			b.exec(t, `CREATE TABLE exports (id int, fencing_token bigint); CREATE TABLE orders (id int, tenant text) PARTITION BY RANGE (id);
				CREATE TABLE orders_1 PARTITION OF orders DEFAULT`)
			for range 2 { // as those who change it see it, and anew
				require.NoError(t, fencing.Guard(t.Context(), pool, "exports", `the 'nightly' \ one`))
				require.NoError(t, fencing.GuardBy(t.Context(), pool, "orders", "tenant"))
				for _, db := range []fencing.Querier{pool, b.pool} {
					report, err := fencing.Verify(t.Context(), db)
					require.NoError(t, err)
					require.True(t, report.OK(), "%+v", report)
					require.Len(t, report.Tables, 2)
				}
				for _, table := range []string{"exports", "orders", "orders_1"} {
					_, err := pool.Exec(t.Context(), `INSERT INTO `+table+` VALUES (1)`)
					require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped, table)
				}
				require.NoError(t, fencing.Unguard(t.Context(), pool, "exports"))
				require.NoError(t, fencing.Unguard(t.Context(), pool, "orders"))
			}
			require.NoError(t, migrations.Down(t.Context(), pool))
			b.requireNothing(t)
		})
	}
}
