package pgtest_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

var names = []string{"first", "second", "third"}

func TestChoose_takesTheFirstThatStarts(t *testing.T) {
	t.Parallel()
	taken, notes, err := pgtest.Choose("", names, map[string]error{"first": errors.New("broken\n  badly")})
	require.NoError(t, err)
	require.Equal(t, "second", taken)
	require.Equal(t, []string{"first: broken badly"}, notes)
}

func TestChoose_triesOnlyTheForcedOne(t *testing.T) {
	t.Parallel()
	taken, notes, err := pgtest.Choose("third", names, nil)
	require.NoError(t, err)
	require.Equal(t, "third", taken)
	require.Empty(t, notes)

	_, _, err = pgtest.Choose("third", names, map[string]error{"third": errors.New("broken")})
	require.ErrorIs(t, err, pgtest.ErrNoServer)
	require.ErrorContains(t, err, "third: broken")
}

func TestChoose_saysWhyNoneWasTaken(t *testing.T) {
	t.Parallel()
	failures := map[string]error{}
	for _, name := range names {
		failures[name] = errors.New("no " + name)
	}
	_, _, err := pgtest.Choose("", names, failures)
	require.ErrorIs(t, err, pgtest.ErrNoServer)
	require.ErrorContains(t, err, "first: no first; second: no second; third: no third; ")
	require.ErrorContains(t, err, "install")
}

func TestStart_returnsErrUnknownProvider(t *testing.T) {
	t.Setenv("PGADVISORY_TEST_PROVIDER", "sqlite")
	_, err := pgtest.Start(t.Context(), io.Discard)
	require.ErrorIs(t, err, pgtest.ErrUnknownProvider)
	require.ErrorContains(t, err, `"sqlite": PGADVISORY_TEST_PROVIDER must be one of url, docker, installed, embedded`)
}

func TestStart_saysWhyTheForcedProviderCannot(t *testing.T) {
	t.Setenv("PGADVISORY_TEST_PROVIDER", "url")
	t.Setenv("DATABASE_URL", "")
	_, err := pgtest.Start(t.Context(), io.Discard)
	require.ErrorIs(t, err, pgtest.ErrNoServer)
	require.ErrorContains(t, err, "url: DATABASE_URL is not set")

	t.Setenv("PGADVISORY_TEST_PROVIDER", "installed")
	t.Setenv("PGADVISORY_TEST_BINDIR", t.TempDir())
	_, err = pgtest.Start(t.Context(), io.Discard)
	require.ErrorIs(t, err, pgtest.ErrNoServer)
	require.ErrorContains(t, err, "installed: PGADVISORY_TEST_BINDIR: ")
}

func TestStart_doesNotReplaceAGivenServerThatDoesNotAnswer(t *testing.T) {
	t.Setenv("PGADVISORY_TEST_PROVIDER", "")
	t.Setenv("DATABASE_URL", "host=127.0.0.1 port=1 user=u password=secret sslmode=disable")
	_, err := pgtest.Start(t.Context(), io.Discard)
	require.ErrorIs(t, err, pgtest.ErrNoServer)
	require.NotContains(t, err.Error(), "secret")
}

func TestFindBinDir_takesTheNewestServer(t *testing.T) {
	older, newer, empty := fakeServer(t, "997.9"), fakeServer(t, "997.10"), t.TempDir()
	t.Setenv("PGADVISORY_TEST_BINDIR", "")
	t.Setenv("PATH", older+string(os.PathListSeparator)+empty+string(os.PathListSeparator)+newer)
	found, err := pgtest.FindBinDir(t.Context())
	require.NoError(t, err)
	require.Equal(t, newer, found)

	preRelease := fakeServer(t, "998beta1")
	t.Setenv("PATH", preRelease+string(os.PathListSeparator)+newer)
	found, err = pgtest.FindBinDir(t.Context())
	require.NoError(t, err)
	require.Equal(t, preRelease, found)

	t.Setenv("PGADVISORY_TEST_BINDIR", older)
	found, err = pgtest.FindBinDir(t.Context())
	require.NoError(t, err)
	require.Equal(t, older, found, "the named folder is the only one")
}

// fakeServer returns a folder with programs that only know their version.
func fakeServer(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	script := "#!/bin/sh\necho 'postgres (PostgreSQL) " + version + " (Debian 1-2)'\n"
	for _, name := range []string{"initdb", "postgres"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	return dir
}
