package advisory_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// The defaults are what the documentation says. Where a test needs a limit it sets
// one, so that none would fail with another default.
func TestConfig_hasTheDocumentedDefaults(t *testing.T) {
	t.Parallel()
	defaults, err := advisory.WithDefaults(nil)
	require.NoError(t, err)
	require.Equal(t, 5*time.Second, defaults.Heartbeat)
	require.Equal(t, 5*time.Second, defaults.HeartbeatTimeout)
	require.Equal(t, 30*time.Second, defaults.VanishTimeout)
	require.Equal(t, 5*time.Second, defaults.UnlockTimeout)
	require.Equal(t, 1, defaults.Reserve)
	require.False(t, defaults.SessionPooler)
	require.Equal(t, 300*time.Millisecond, advisory.Slice, "for which a waiting session keeps a snapshot")

	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	for _, sentence := range []string{
		`\x60Heartbeat\x60 \+ \x60HeartbeatTimeout\x60 \(10 s by default\)`, `\x60VanishTimeout\x60 \(30 s by default\)`, `a snapshot for at most 0\.3 s`,
	} {
		require.Regexp(t, sentence, string(readme))
	}
}
