package pgtest_test

import (
	"os"
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestMain(m *testing.M) {
	// See TestStart_leavesNothingWhenTheProcessIsKilled.
	if os.Getenv(envChild) != "" {
		runChild()
		return
	}
	pgtest.Main(m)
}
