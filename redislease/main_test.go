//go:build unix

package redislease_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/childproc"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/redistest"
)

func TestMain(m *testing.M) {
	childproc.Main(map[string]childproc.Role{"holder": holder})
	pgtest.Main(m, redistest.Tidy)
}
