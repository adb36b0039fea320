package freeport_test

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/freeport"
)

func TestNext_givesEachPortOnce(t *testing.T) {
	t.Parallel()
	seen := make(map[int]bool)
	for range 500 {
		port, err := freeport.Next()
		require.NoError(t, err)
		require.False(t, seen[port])
		seen[port] = true
		require.Less(t, port, 32768)
	}
	for port := range seen {
		listener, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil { // or another process has it by now
			require.NoError(t, listener.Close())
		}
	}
}
