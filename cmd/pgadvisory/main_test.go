//go:build unix

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

const program = "pgadvisory"

func TestMain(m *testing.M) {
	if help := helpers[os.Getenv(helperVar)]; help != nil {
		help(os.Args[1:])
		return
	}
	pgtest.Main(m, built.remove)
}

// built is the program, built by the first test that runs it: with the race
// detector if the tests have it, and otherwise as users get it.
var built build

type build struct {
	once sync.Once
	dir  string
	err  error
}

// binDir is a folder with the program.
func binDir(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		//nolint:usetesting // it is for all tests, and TestMain removes it
		if built.dir, built.err = os.MkdirTemp("", "pgadvisory-"); built.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", filepath.Join(built.dir, program), ".")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if raceDetector {
			cmd.Args = append(cmd.Args[:2:2], append([]string{"-race"}, cmd.Args[2:]...)...)
			cmd.Env = os.Environ()
		}
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		built.err = cmd.Run()
	})
	require.NoError(t, built.err)
	return built.dir
}

func (b *build) remove() {
	if b.dir != "" {
		_ = os.RemoveAll(b.dir)
	}
}
