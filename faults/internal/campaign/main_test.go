//go:build unix

package campaign_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/faults/internal/worker"
	"github.com/pgadvisory/pgadvisory/internal/childproc"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestMain(m *testing.M) {
	childproc.Main(worker.Roles)
	pgtest.Main(m)
}
