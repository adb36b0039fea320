package pgtest

import (
	"crypto/rand"
	"os"
	"path/filepath"
	"strings"
)

// memory is where Linux has a file system in memory. Each test's database is a
// copy of 300 files, which is several times faster there.
const memory = "/dev/shm"

// memoryNeeded is what some test binaries at once may take there.
const memoryNeeded = 4 << 30

// newFolderName names a folder for a server. It is the watchdog that makes it,
// so that there is no moment at which the folder exists and nobody is going to
// remove it.
func newFolderName() string {
	parent := os.TempDir()
	if os.Getenv("TMPDIR") == "" && freeSpace(memory) >= memoryNeeded {
		parent = memory
	}
	return filepath.Join(parent, "pgtest-"+strings.ToLower(rand.Text()))
}
