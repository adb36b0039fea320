package advisory_test

import (
	"fmt"
	"os"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestMain(m *testing.M) {
	if err := checkPoolerEnv(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	pgtest.MainWithExamples(m)
}
