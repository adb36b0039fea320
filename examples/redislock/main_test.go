//go:build unix

package main

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// The program starts itself again, which in a test is the test.
func TestMain(m *testing.M) {
	if _, ok := settingsFromEnv(); ok {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestRun_losesADepositWithoutAFenceOnly(t *testing.T) {
	defer goleak.VerifyNone(t)
	var out strings.Builder
	require.NoError(t, run(t.Context(), &out), "%s", &out)
	require.Equal(t, 1, strings.Count(out.String(), "are lost"))
	require.Equal(t, 3, strings.Count(out.String(), "is refused"))
	require.Equal(t, 4, strings.Count(out.String(), "Alice has lost the lock"))
}

func TestRun_endsWithItsContext(t *testing.T) {
	defer goleak.VerifyNone(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, run(ctx, new(strings.Builder)))
}
