package advisory_test

import (
	"context"
	"runtime"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// stackTracer notes on which stack statements that lock are sent.
type stackTracer struct{ stack string }

func (s *stackTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "pg_try_advisory_lock") {
		stack := make([]byte, 1<<16)
		s.stack = string(stack[:runtime.Stack(stack, false)])
	}
	return ctx
}

func (*stackTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// A lock that is free is taken on the caller's own goroutine.
func TestTryLock_asksOnTheCallersGoroutine(t *testing.T) {
	t.Parallel()
	tracer := new(stackTracer)
	b := setup(t, maxConns(2), func(c *pgxpool.Config) { c.ConnConfig.Tracer = tracer })
	lock := func() {
		k, err := b.locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		require.NoError(t, k.Unlock(t.Context()))
	}
	lock() // and the connection is probed, on another one
	lock()
	require.Contains(t, tracer.stack, t.Name())
}
