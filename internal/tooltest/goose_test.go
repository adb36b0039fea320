package tooltest_test

import (
	"database/sql"
	"io/fs"
	"testing"

	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/migrations"
)

// With the table that goose makes by itself, goose_db_version in public.
func TestGoose_upAndDown(t *testing.T) {
	t.Parallel()
	exported, _ := files(t, migrations.Goose)
	for name, folder := range map[string]fs.FS{"FS": migrations.FS, "Export": exported} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			db, err := sql.Open("pgx", b.db.DSN)
			require.NoError(t, err)
			defer func() { require.NoError(t, db.Close()) }()
			provider, err := goose.NewProvider(goose.DialectPostgres, db, folder, goose.WithDisableGlobalRegistry(true))
			require.NoError(t, err)
			_, err = provider.Up(t.Context())
			require.NoError(t, err)
			b.requireForeign(t)
			for _, version := range []int64{1, 2} {
				_, err = provider.ApplyVersion(t.Context(), 2, version == 2)
				require.NoError(t, err)
				b.requireVersion(t, version)
			}
			_, err = provider.DownTo(t.Context(), 0)
			require.NoError(t, err)
			b.requireNothing(t)
		})
	}
}
