package tooltest_test

import (
	"database/sql"
	"testing"

	"github.com/golang-migrate/migrate/v4"
	pgxdriver "github.com/golang-migrate/migrate/v4/database/pgx/v5"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/migrations"
)

// golangMigrate is for one run of the tool.
func golangMigrate(t *testing.T, b *bundle, run func(*migrate.Migrate) error) error {
	t.Helper()
	folder, _ := files(t, migrations.GolangMigrate)
	source, err := iofs.New(folder, ".")
	require.NoError(t, err)
	db, err := sql.Open("pgx", b.db.DSN)
	require.NoError(t, err)
	target, err := pgxdriver.WithInstance(db, &pgxdriver.Config{MigrationsTable: "fencing_migrations"})
	require.NoError(t, err)
	m, err := migrate.NewWithInstance("iofs", source, "pgx5", target)
	require.NoError(t, err)
	err = run(m)
	sourceErr, targetErr := m.Close()
	require.NoError(t, sourceErr)
	require.NoError(t, targetErr)
	return err
}

func TestGolangMigrate_upAndDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, golangMigrate(t, b, (*migrate.Migrate).Up))
	b.requireForeign(t)
	require.ErrorIs(t, golangMigrate(t, b, (*migrate.Migrate).Up), migrate.ErrNoChange)
	require.NoError(t, golangMigrate(t, b, func(m *migrate.Migrate) error { return m.Steps(-1) }))
	b.requireVersion(t, 1)
	require.NoError(t, golangMigrate(t, b, func(m *migrate.Migrate) error { return m.Steps(1) }))
	b.requireVersion(t, 2)
	require.NoError(t, golangMigrate(t, b, (*migrate.Migrate).Down))
	b.requireNothing(t)
}

// The tool then says that the version is dirty. It is not: nothing of it is
// there.
func TestGolangMigrate_leavesNothingHalfWhenAMigrationFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, golangMigrate(t, b, func(m *migrate.Migrate) error { return m.Steps(1) }))
	b.exec(t, inTheWay)
	objects := one[int](t, b, installedSQL)
	err := golangMigrate(t, b, (*migrate.Migrate).Up)
	require.ErrorContains(t, err, "42723")
	require.NotContains(t, err.Error(), "25P02", "the unlock works")
	b.requireVersion(t, 1)
	require.Equal(t, objects, one[int](t, b, installedSQL))
	requireDirty(t, b, 2)

	b.exec(t, outOfTheWay)
	require.NoError(t, golangMigrate(t, b, func(m *migrate.Migrate) error { return m.Force(1) }))
	require.NoError(t, golangMigrate(t, b, (*migrate.Migrate).Up))
	b.requireForeign(t)

	// And down.
	b.exec(t, `CREATE TABLE fencing.job (name text)`)
	// By one step: the tool reads ahead, and leaks what it has read.
	require.ErrorContains(t, golangMigrate(t, b, func(m *migrate.Migrate) error { return m.Steps(-1) }), "2BP01")
	b.requireVersion(t, 2)
	b.exec(t, `DROP TABLE fencing.job`)
	require.NoError(t, golangMigrate(t, b, func(m *migrate.Migrate) error { return m.Force(2) }))
	require.NoError(t, golangMigrate(t, b, (*migrate.Migrate).Down))
	b.requireNothing(t)
}

// Before the first version there is none, which the tool calls -1.
func TestGolangMigrate_isForcedToBeforeTheFirstVersion(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE SCHEMA fencing; CREATE TABLE fencing.job (name text)`)
	// By one step: the tool reads ahead, and leaks what it has read.
	require.ErrorContains(t, golangMigrate(t, b, func(m *migrate.Migrate) error { return m.Steps(1) }), "42P06")
	b.requireVersion(t, 0)
	requireDirty(t, b, 1)
	b.exec(t, `DROP SCHEMA fencing CASCADE`)
	require.NoError(t, golangMigrate(t, b, func(m *migrate.Migrate) error { return m.Force(-1) }))
	require.NoError(t, golangMigrate(t, b, (*migrate.Migrate).Up))
	b.requireForeign(t)
}

func requireDirty(t *testing.T, b *bundle, version int) {
	t.Helper()
	var dirty migrate.ErrDirty
	require.ErrorAs(t, golangMigrate(t, b, (*migrate.Migrate).Up), &dirty)
	require.Equal(t, version, dirty.Version)
}
