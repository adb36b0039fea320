package connect_test

import (
	"testing"

	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// TestMain starts no server; it clears the variables of libpq.
func TestMain(m *testing.M) { pgtest.Main(m) }
