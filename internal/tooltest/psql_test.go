package tooltest_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/migrations"
)

// psql runs those of the files that match, in order or backwards.
func psql(t *testing.T, b *bundle, pattern string) (string, error) {
	t.Helper()
	_, folder := files(t, migrations.SQL)
	names, err := filepath.Glob(filepath.Join(folder, pattern))
	require.NoError(t, err)
	require.NotEmpty(t, names)
	if pattern == "*.down.sql" {
		slices.Reverse(names)
	}
	args := []string{"--no-psqlrc", "--quiet", "--dbname", b.db.DSN}
	for _, name := range names {
		args = append(args, "--file", name)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, filepath.Join(b.db.Tools(t, "psql"), "psql"), args...).CombinedOutput()
	return string(out), err
}

func TestPsql_upAndDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	out, err := psql(t, b, "*.up.sql")
	require.NoError(t, err, out)
	b.requireForeign(t)
	// Not twice.
	out, err = psql(t, b, "*.up.sql")
	require.Error(t, err)
	require.Contains(t, out, "already exists")
	b.requireVersion(t, newest)
	out, err = psql(t, b, "*2_*.down.sql")
	require.NoError(t, err, out)
	b.requireVersion(t, 1)
	out, err = psql(t, b, "*2_*.up.sql")
	require.NoError(t, err, out)
	out, err = psql(t, b, "*.down.sql")
	require.NoError(t, err, out)
	b.requireNothing(t)
}

// One file fails, and the next is not begun.
func TestPsql_stopsAtTheFirstError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE SCHEMA fencing; CREATE FUNCTION fencing.version() RETURNS int LANGUAGE sql AS 'SELECT 0'`)
	objects := one[int](t, b, installedSQL)
	out, err := psql(t, b, "*.up.sql")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	require.Equal(t, 3, exit.ExitCode(), out)
	require.Contains(t, out, "version")
	require.NotContains(t, out, "fencing.guarded")
	require.Equal(t, objects, one[int](t, b, installedSQL))
}
