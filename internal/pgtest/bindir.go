package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// envBinDir names the one folder to look for server binaries in.
const envBinDir = "PGADVISORY_TEST_BINDIR"

// installFolders are the places that packages put server binaries in, most of
// which are in nobody's PATH.
var installFolders = []string{
	"/usr/lib/postgresql/*/bin",                                 // Debian, Ubuntu
	"/usr/lib/postgresql*/bin",                                  // openSUSE, Gentoo
	"/usr/libexec/postgresql*",                                  // Alpine
	"/usr/pgsql-*/bin",                                          // PGDG for RHEL and Fedora
	"/usr/local/pgsql/bin",                                      // built from source
	"/opt/homebrew/opt/postgresql*/bin",                         // Homebrew, Apple silicon
	"/usr/local/opt/postgresql*/bin",                            // Homebrew, Intel
	"/home/linuxbrew/.linuxbrew/opt/postgresql*/bin",            // Homebrew, Linux
	"/opt/local/lib/postgresql*/bin",                            // MacPorts
	"/Applications/Postgres.app/Contents/Versions/*/bin",        // Postgres.app
	"/Library/PostgreSQL/*/bin",                                 // EDB installer
	"/run/current-system/sw/bin", "/nix/var/nix/profiles/*/bin", // NixOS
}

// A binDir is a folder with server binaries of one version.
type binDir struct {
	path         string
	major, minor int
}

// findBinDir returns the folder with the newest server.
func findBinDir(ctx context.Context) (binDir, error) {
	if path := os.Getenv(envBinDir); path != "" {
		found, err := inspectBinDir(ctx, path)
		if err != nil {
			return binDir{}, fmt.Errorf("%s: %w", envBinDir, err)
		}
		return found, nil
	}
	var newest binDir
	for _, path := range candidateBinDirs(ctx) {
		// A folder without a usable server is what a search is expected to
		// meet most of the time.
		found, err := inspectBinDir(ctx, path)
		if err == nil && found.newerThan(newest) {
			newest = found
		}
	}
	if newest.path == "" {
		return binDir{}, errors.New("no folder with initdb and postgres in PATH or the usual places")
	}
	return newest, nil
}

// candidateBinDirs lists the folders to look in; of two with the same version
// the earlier one counts.
func candidateBinDirs(ctx context.Context) []string {
	var dirs []string
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(dir) {
			dirs = append(dirs, dir)
		}
	}
	if out, err := exec.CommandContext(ctx, "pg_config", "--bindir").Output(); err == nil {
		dirs = append(dirs, strings.TrimSpace(string(out)))
	}
	for _, pattern := range installFolders {
		// The only possible error is a malformed pattern.
		matches, _ := filepath.Glob(pattern)
		dirs = append(dirs, matches...)
	}
	return dirs
}

var versionPattern = regexp.MustCompile(`\(PostgreSQL\) (\d+)(?:\.(\d+))?`)

// inspectBinDir asks the server in a folder for its version.
func inspectBinDir(ctx context.Context, path string) (binDir, error) {
	for _, name := range []string{"initdb", "postgres"} {
		// LookPath of a path with a slash checks that it can be executed.
		if _, err := exec.LookPath(filepath.Join(path, name)); err != nil {
			return binDir{}, err
		}
	}
	out, err := exec.CommandContext(ctx, filepath.Join(path, "postgres"), "--version").Output()
	if err != nil {
		return binDir{}, fmt.Errorf("version of %s: %w", path, err)
	}
	match := versionPattern.FindStringSubmatch(string(out))
	if match == nil {
		return binDir{}, fmt.Errorf("version of %s: not understood: %q", path, out)
	}
	// The pattern lets only digits through; a pre-release has no minor version.
	major, _ := strconv.Atoi(match[1])
	minor, _ := strconv.Atoi(match[2])
	return binDir{path: path, major: major, minor: minor}, nil
}

func (b binDir) newerThan(other binDir) bool {
	return b.major > other.major || b.major == other.major && b.minor > other.minor
}
