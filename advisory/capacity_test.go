package advisory

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCapacity_waitsOnlyForConnectionsOnTheirWayBack(t *testing.T) {
	t.Parallel()
	l := newIdleLocker(2)
	require.NoError(t, l.reserve(t.Context()))
	require.NoError(t, l.reserve(t.Context()))
	require.ErrorIs(t, l.reserve(t.Context()), ErrPoolExhausted)
	l.releasing++
	reserved := make(chan error)
	go func() { reserved <- l.reserve(t.Context()) }()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, l.reserve(ctx), context.Canceled)
	l.unreserve(func() {})
	require.NoError(t, <-reserved)
	l.releasing--
	require.ErrorIs(t, l.reserve(t.Context()), ErrPoolExhausted)
}
