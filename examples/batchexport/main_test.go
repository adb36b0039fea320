//go:build unix

package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/migrations"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// program is the program, built once, and what it does.
type program struct{ binary string }

// TestProgram runs the program as a user does, on a server that is given to it.
func TestProgram(t *testing.T) {
	t.Parallel()
	p := program{build(t)}
	t.Run("exports all and refuses the stale day", p.exportsAll)
	t.Run("removes the fencing that it installed", p.removesFencing)
	t.Run("runs twice at once where fencing is missing", p.runsTwiceAtOnce)
	t.Run("fails without the fence", p.failsUnguarded)
	t.Run("refuses a folder that is not empty", p.refusesFolderInUse)
	t.Run("says so when the server is not there", p.needsServer)

	t.Run("leaves nothing when a signal comes", p.endsBySignal)
	t.Run("leaves nothing when the set-up fails", p.failsInSetUp)
	t.Run("leaves nothing when a replica fails", p.failsInReplica)
	t.Run("leaves nothing when nobody reads its output", p.endsWithItsReader)
	t.Run("leaves no replica behind when it is killed", p.isKilled)
}

// build compiles the program like the test itself, with or without -race.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "batchexport")
	args := []string{"build", "-o", binary}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	out, err := exec.CommandContext(t.Context(), "go", append(args, ".")...).CombinedOutput()
	require.NoError(t, err, string(out))
	return binary
}

func (p program) exportsAll(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	// Somebody else's resource and table, which must stay as they are.
	db.exec(t, "CREATE TABLE exports (day date PRIMARY KEY)")
	require.NoError(t, fencing.Guard(t.Context(), db.pool, "exports", "nightly"))
	db.exec(t, "INSERT INTO fencing.resource (name, mark) VALUES ('nightly', 1)")
	before := db.snapshot(t)

	keep := filepath.Join(t.TempDir(), "new", "folder")
	r := p.run(t, db.DSN, "-keep", keep)
	require.Zero(t, r.code, r.text())
	r.requireLines(t,
		`main +PostgreSQL \d+\.\d+, given by DATABASE_URL`,
		`main +loaded 1707 earthquakes of 8 days into schema batchexport_\w{8}`,
		`main +guarded the exports for resource "batchexport-\w{8}"`,
		`replica-\d +holds the lock +token \d+`,
		`replica-\d +published 2018-01-31, 198 earthquakes +token \d+`,
		`replica-\d +published 2018-02-01, 231 earthquakes +token \d+`,
		`main +froze replica-\d in the middle of 2018-02-02 \(SIGSTOP\)`,
		`main +terminated the session of its lock, backend \d+`,
		`replica-\d +holds the lock +token \d+`,
		`replica-\d +published 2018-02-02, 242 earthquakes +token \d+`,
		`replica-\d +published 2018-02-07, 14 earthquakes +token \d+`,
		`main +woke replica-\d \(SIGCONT\), which goes on as if nothing happened`,
		`replica-\d +REFUSED to publish 2018-02-02: token \d+ is stale, \d+ is current +token \d+`,
		`replica-\d +learns that its lock is lost \(terminated\) +token \d+`,
		`All 9 checks passed`)
	require.NotContains(t, r.stdout, "\x1b", "colour without a terminal")
	files, err := os.ReadDir(keep)
	require.NoError(t, err)
	require.Len(t, files, 8)
	db.requireUnchanged(t, before)
}

func (p program) removesFencing(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	require.NoError(t, migrations.Down(t.Context(), db.pool))
	before := db.snapshot(t)

	r := p.run(t, db.DSN)
	require.Zero(t, r.code, r.text())
	r.requireLines(t, `holds the lock +token 1$`, `token 1 is stale, 3 is current +token 1$`)
	db.requireUnchanged(t, before)
}

func (p program) runsTwiceAtOnce(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	require.NoError(t, migrations.Down(t.Context(), db.pool))
	before := db.snapshot(t)

	for _, live := range []*running{p.start(t, db.DSN), p.start(t, db.DSN)} {
		r := live.wait(t)
		require.Zero(t, r.code, r.text())
	}
	db.requireUnchanged(t, before)
}

// failsUnguarded is the proof that the checks find what they are to find.
func (p program) failsUnguarded(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	before := db.snapshot(t)

	r := p.run(t, db.DSN, "-unguarded")
	require.Equal(t, 1, r.code, r.text())
	r.requireLines(t,
		`FAILED +each of the 8 days is published, and was once: 2018-02-02 was published 2 times`,
		`FAILED +no other file is left`,
		`FAILED +before 2018-02-02 `,
		`FAILED +the one stale write was refused, .*: 0 writes were refused`)
	require.Equal(t, "batchexport: 4 of 9 checks failed\n", r.stderr)
	db.requireUnchanged(t, before)
}

func (p program) refusesFolderInUse(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	before := db.snapshot(t)
	keep := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(keep, "mine.txt"), nil, 0o600))

	r := p.run(t, db.DSN, "-keep", keep)
	require.Equal(t, 1, r.code, r.text())
	require.Contains(t, r.stderr, "the folder is not empty")
	db.requireUnchanged(t, before)
}

func (p program) needsServer(t *testing.T) {
	t.Parallel()
	r := p.run(t, "postgres://nobody@127.0.0.1:1/none")
	require.Equal(t, 1, r.code, r.text())
	require.Contains(t, r.stderr, "no PostgreSQL")
}
