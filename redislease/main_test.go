//go:build unix

package redislease_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/childproc"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/redistest"
)

func TestMain(m *testing.M) {
	childproc.Main(map[string]childproc.Role{"holder": holder})
	if err := redistest.ForExamples(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	pgtest.Main(m, redistest.Tidy)
}
