package tooltest_test

import (
	"testing"

	"github.com/jackc/tern/v2/migrate"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/migrations"
)

func tern(t *testing.T, b *bundle) *migrate.Migrator {
	t.Helper()
	folder, _ := files(t, migrations.Tern)
	m, err := migrate.NewMigrator(t.Context(), b.db.Conn(t), "public.fencing_version")
	require.NoError(t, err)
	require.NoError(t, m.LoadMigrations(folder))
	require.Len(t, m.Migrations, int(newest))
	return m
}

func TestTern_upAndDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, tern(t, b).Migrate(t.Context()))
	b.requireForeign(t)
	require.NoError(t, tern(t, b).Migrate(t.Context()))
	for _, version := range []int32{1, 2, 1} {
		require.NoError(t, tern(t, b).MigrateTo(t.Context(), version))
		b.requireVersion(t, int64(version))
	}
	require.NoError(t, tern(t, b).MigrateTo(t.Context(), 0))
	b.requireNothing(t)
}

func TestTern_leavesNothingHalfWhenAMigrationFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, tern(t, b).MigrateTo(t.Context(), 1))
	b.exec(t, inTheWay)
	objects := one[int](t, b, installedSQL)
	require.ErrorContains(t, tern(t, b).Migrate(t.Context()), "42723")
	b.requireVersion(t, 1)
	require.Equal(t, objects, one[int](t, b, installedSQL))
	b.exec(t, outOfTheWay)
	require.NoError(t, tern(t, b).Migrate(t.Context()))
	b.requireForeign(t)
}
