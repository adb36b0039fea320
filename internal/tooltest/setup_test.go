package tooltest_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/migrations"
)

const newest = int64(2)

// bundle is a database in which nothing is installed.
type bundle struct {
	db       *pgtest.Database
	pool     *pgxpool.Pool
	observer *pgx.Conn
}

func setup(t *testing.T) *bundle {
	t.Helper()
	db := pgtest.New(t)
	b := &bundle{db: db, pool: db.Pool(t), observer: db.Conn(t)}
	require.NoError(t, migrations.Down(t.Context(), b.pool))
	return b
}

// files are the exported ones, as a file system and in a folder.
func files(t *testing.T, format string) (fs.FS, string) {
	t.Helper()
	exported, err := migrations.Export(format)
	require.NoError(t, err)
	folder, memory := t.TempDir(), fstest.MapFS{}
	for _, file := range exported {
		memory[file.Name] = &fstest.MapFile{Data: file.Content}
		require.NoError(t, os.WriteFile(filepath.Join(folder, file.Name), file.Content, 0o600))
	}
	return memory, folder
}

func (b *bundle) exec(t *testing.T, sql string) {
	t.Helper()
	_, err := b.observer.Exec(t.Context(), sql)
	require.NoError(t, err)
}

func one[T any](t *testing.T, b *bundle, sql string) T {
	t.Helper()
	var value T
	require.NoError(t, b.observer.QueryRow(t.Context(), sql).Scan(&value))
	return value
}

func (b *bundle) requireVersion(t *testing.T, want int64) {
	t.Helper()
	version, err := migrations.Version(t.Context(), b.observer)
	require.NoError(t, err)
	require.Equal(t, want, version)
}

// requireForeign says that all is installed and works, and that package
// migrations leaves it alone.
func (b *bundle) requireForeign(t *testing.T) {
	t.Helper()
	b.requireVersion(t, newest)
	b.exec(t, `CREATE TABLE exports (id int)`)
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "exports", "nightly"))
	locker, err := advisory.New(b.pool, nil)
	require.NoError(t, err)
	fencer, err := fencing.New(locker, nil)
	require.NoError(t, err)
	lease, err := fencer.Lock(t.Context(), "nightly")
	require.NoError(t, err)
	require.Equal(t, fencing.Token(1), lease.Token())
	require.NoError(t, lease.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `INSERT INTO exports VALUES (1)`)
		return err
	}))
	_, err = b.pool.Exec(t.Context(), `INSERT INTO exports VALUES (2)`)
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
	require.NoError(t, lease.Unlock(t.Context()))
	require.NoError(t, locker.Close(t.Context()))
	report, err := fencing.Verify(t.Context(), b.pool)
	require.NoError(t, err)
	require.True(t, report.OK(), "%+v", report)
	require.NoError(t, fencing.Unguard(t.Context(), b.pool, "exports"))

	objects := one[int](t, b, installedSQL)
	require.ErrorContains(t, migrations.Up(t.Context(), b.pool), "fencing was installed by another tool")
	require.ErrorContains(t, migrations.Down(t.Context(), b.pool), "fencing was installed by another tool")
	require.Equal(t, objects, one[int](t, b, installedSQL))
	b.requireVersion(t, newest)
}

const installedSQL = `SELECT
	(SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = 'fencing') +
	(SELECT count(*) FROM pg_catalog.pg_class WHERE relnamespace = to_regnamespace('fencing')) +
	(SELECT count(*) FROM pg_catalog.pg_proc WHERE pronamespace = to_regnamespace('fencing'))`

// requireNothing says that nothing is left, and that package migrations can
// take over.
func (b *bundle) requireNothing(t *testing.T) {
	t.Helper()
	b.requireVersion(t, 0)
	require.Zero(t, one[int](t, b, installedSQL))
	require.NoError(t, migrations.Up(t.Context(), b.pool))
	b.requireVersion(t, newest)
}

// inTheWay makes the second migration fail at one of its last statements.
const (
	inTheWay    = `CREATE FUNCTION fencing.unguard(target regclass) RETURNS int LANGUAGE sql AS 'SELECT 1'`
	outOfTheWay = `DROP FUNCTION fencing.unguard(regclass)`
)
