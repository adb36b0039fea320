package pgtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// Tools returns a folder in which all of the client programs are, pg_dump and
// psql for example, of the server's version or of the next that is installed:
// pg_dump refuses a server that is newer than itself. t is skipped where there is
// none.
func (d *Database) Tools(t testing.TB, programs ...string) string {
	t.Helper()
	dirs := candidateBinDirs(t.Context())
	if dir := os.Getenv(envBinDir); dir != "" {
		dirs = append([]string{dir}, dirs...)
	}
	best, found := 0, ""
	for _, dir := range dirs {
		// A folder without them is what a search is expected to meet.
		major, err := majorOf(t, dir, programs)
		if err == nil && major >= d.Server.Version()/10000 && (found == "" || major < best) {
			best, found = major, dir
		}
	}
	if found == "" {
		t.Skipf("pgtest: no folder with %v of PostgreSQL %d or newer; install its client programs "+
			"(Debian and Ubuntu: apt-get install postgresql-client; Fedora: dnf install postgresql; "+
			"macOS: brew install libpq)", programs, d.Server.Version()/10000)
	}
	return found
}

// majorOf is the version of all of the programs in a folder.
func majorOf(t testing.TB, dir string, programs []string) (major int, err error) {
	t.Helper()
	for _, program := range programs {
		path, err := exec.LookPath(filepath.Join(dir, program))
		if err != nil {
			return 0, err
		}
		out, err := exec.CommandContext(t.Context(), path, "--version").Output()
		if err != nil {
			return 0, err
		}
		match := versionPattern.FindStringSubmatch(string(out))
		if match == nil {
			return 0, fmt.Errorf("version of %s: not understood: %q", path, out)
		}
		// The pattern lets only digits through.
		this, _ := strconv.Atoi(match[1])
		if major != 0 && this != major {
			return 0, fmt.Errorf("%s: programs of versions %d and %d", dir, major, this)
		}
		major = this
	}
	return major, nil
}
