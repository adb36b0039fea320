//go:build unix

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/supervise"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

const program = "pgadvisory"

// The tests' binary is the command when it is called by that name, so that the
// race detector looks at real processes too.
func TestMain(m *testing.M) {
	supervise.Main()
	if filepath.Base(os.Args[0]) == program {
		main()
	}
	pgtest.Main(m)
}
