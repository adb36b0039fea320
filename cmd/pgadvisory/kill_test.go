//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A session that gives the lock back while kill asks is not terminated, even if it then
// holds a pair that has the same 64 bits.
func TestKill_sparesAPairOfTheSameNumber(t *testing.T) {
	t.Parallel()
	dsn, holder := setup(t)
	const number = "hashtextextended('nightly', 0)"
	_, err := holder.Exec(t.Context(), "SELECT pg_advisory_lock("+number+")")
	require.NoError(t, err)
	p := start(t, dsn, "kill", "nightly")
	eventually(t, "the question", func() bool { return strings.Contains(p.stdout.String(), "[y/N]") })

	_, err = holder.Exec(t.Context(), "SELECT pg_advisory_unlock("+number+"), pg_advisory_lock(("+number+
		" >> 32)::int, (("+number+" << 32) >> 32)::int)")
	require.NoError(t, err)
	_, err = p.stdin.Write([]byte("y\n"))
	require.NoError(t, err)
	p.wait()
	require.NoError(t, holder.Ping(t.Context()))
	require.Equal(t, 0, count(t, holder, true))
}
