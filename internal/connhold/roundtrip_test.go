package connhold_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
)

const limit = time.Minute

func TestAsk_answersInOneRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hold := b.pin(t)
	echo := hold.NewStatement("echo", "SELECT $1::text")
	for _, text := range []string{"t", "f", "", "a longer one"} {
		answer, err := hold.RoundTrip(t.Context(), limit, echo, []byte(text))
		require.NoError(t, err)
		require.Equal(t, text, answer)
	}
	hold.Release()
	require.EqualValues(t, 1, b.pool.Stat().IdleConns())
}

func TestAsk_afterAnErrorTheHoldCanOnlyBeDestroyed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for sql, message := range map[string]string{
		"SELECT 1 / ($1::int - 1)":                      "22012",
		"SELECT nothing FROM nowhere WHERE $1 = 1":      "42P01",
		"SELECT generate_series(1, $1::int + 1)":        "answered with 2 rows",
		"SELECT 1 WHERE $1::int = 0":                    "answered with 0 rows",
		"SELECT pg_terminate_backend(pg_backend_pid())": "bind message supplies 1 parameters",
	} {
		hold := b.pin(t)
		pid := hold.PID()
		_, err := hold.RoundTrip(t.Context(), limit, hold.NewStatement("fails", sql), []byte("1"))
		require.ErrorContains(t, err, message, sql)
		require.False(t, hold.IsClean())
		hold.Release()
		require.Zero(t, b.pool.Stat().TotalConns())
		b.ended(t, pid)
	}
}

func TestAsk_isLeftWhenCtxEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hold := b.pin(t)
	ctx, cancel := context.WithCancel(t.Context())
	blocker := b.block(t)
	left := make(chan error, 1)
	go func() {
		_, err := hold.RoundTrip(ctx, limit, hold.NewStatement("waits", "SELECT pg_advisory_lock($1::bigint)"), []byte("7"))
		left <- err
	}()
	b.eventually(t, "it waits", func() bool { return b.waits(t, hold.PID()) })
	cancel()
	require.ErrorIs(t, <-left, connhold.ErrAbandoned)
	require.False(t, hold.IsClean(), "a statement is under way")
	require.Panics(t, func() { _ = run(t, hold, "SELECT 1") })
	require.Panics(t, func() { hold.Watch(slow, nil) })
	_, err := hold.Resume(ctx)
	require.ErrorIs(t, err, connhold.ErrAbandoned, "left once more")

	blocker()
	answer, err := hold.Resume(t.Context())
	require.NoError(t, err)
	require.Empty(t, answer)
	require.NoError(t, run(t, hold, "SELECT pg_advisory_unlock(7)"))
	hold.Release()
	require.EqualValues(t, 1, b.pool.Stat().IdleConns())
}

func TestAsk_whatWasLeftIsDestroyed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hold := b.pin(t)
	pid := hold.PID()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := hold.RoundTrip(ctx, limit, hold.NewStatement("sleeps", "SELECT pg_sleep($1)"), []byte("0.05"))
	require.ErrorIs(t, err, connhold.ErrAbandoned)
	hold.Release()
	require.Zero(t, b.pool.Stat().TotalConns())
	b.ended(t, pid)
}

// The end of ctx and the answer meet in every way.
func TestAsk_survivesTheEndOfCtxAtAnyInstant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hold := b.pin(t)
	pid := hold.PID()
	echo := hold.NewStatement("echo", "SELECT $1::text")
	var left int
	for i := range 500 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%50)*10*time.Microsecond)
		answer, err := hold.RoundTrip(ctx, limit, echo, []byte{byte('a' + i%26)})
		cancel()
		if errors.Is(err, connhold.ErrAbandoned) {
			left++
			answer, err = hold.Resume(t.Context())
		}
		require.NoError(t, err)
		require.Equal(t, string(rune('a'+i%26)), answer)
	}
	require.Positive(t, left)
	hold.Release()
	again := b.pin(t)
	require.Equal(t, pid, again.PID())
	again.Release()
}

func TestAsk_isBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault     func(*bundle, *connhold.Hold)
		parameter string
	}{
		"the answer does not come":     {func(b *bundle, _ *connhold.Hold) { b.proxy.Swallow() }, "x"},
		"the network takes no more":    {func(b *bundle, _ *connhold.Hold) { b.proxy.Delay(faultproxy.ToServer, time.Hour) }, strings.Repeat("x", 16<<20)},
		"the server takes its time":    {func(*bundle, *connhold.Hold) {}, "sleep"},
		"the socket was closed before": {func(_ *bundle, hold *connhold.Hold) { hold.Kill() }, "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			hold := b.pin(t)
			pid := hold.PID()
			s := hold.NewStatement("slow", "SELECT CASE $1::text WHEN 'sleep' THEN pg_sleep(1000)::text END")
			_, err := hold.RoundTrip(t.Context(), limit, s, []byte("x"))
			require.NoError(t, err)
			c.fault(b, hold)
			start := time.Now()
			_, err = hold.RoundTrip(t.Context(), 100*time.Millisecond, s, []byte(c.parameter))
			require.Error(t, err)
			require.Less(t, time.Since(start), 10*time.Second)
			require.NotErrorIs(t, err, connhold.ErrAbandoned)
			hold.Release()
			require.Zero(t, b.pool.Stat().TotalConns())
			b.proxy.Cut()
			_, err = b.observer.Exec(t.Context(), "SELECT pg_terminate_backend($1)", int(pid))
			require.NoError(t, err)
			b.ended(t, pid)
		})
	}
}

// pgx closes the connection in the background when the context of a statement of
// its own ends.
func TestAsk_onAConnectionThatPgxIsClosing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hold := b.pin(t)
	b.proxy.Swallow() // so that its goodbye lasts
	require.Error(t, hold.Run(t.Context(), limit, func(_ context.Context, conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := conn.Exec(ctx, "SELECT pg_sleep(1000)")
		return err
	}))
	start := time.Now()
	_, err := hold.RoundTrip(t.Context(), limit, hold.NewStatement("late", "SELECT 1"))
	require.Error(t, err)
	require.Less(t, time.Since(start), limit/2)
	hold.Release()
	require.Zero(t, b.pool.Stat().TotalConns())
}

func TestAsk_preparesAnewWhatTheServerHasForgotten(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hold := b.pin(t)
	echo := hold.NewStatement("echo", "SELECT $1::text")
	for range 3 {
		answer, err := hold.RoundTrip(t.Context(), limit, echo, []byte("x"))
		require.NoError(t, err)
		require.Equal(t, "x", answer)
		require.NoError(t, run(t, hold, "DISCARD ALL"))
	}
	require.True(t, hold.IsClean())
	// Also when it has another text under the same name.
	require.NoError(t, run(t, hold, "PREPARE echo (text) AS SELECT 'other'"))
	answer, err := hold.RoundTrip(t.Context(), limit, hold.NewStatement("echo", "SELECT upper($1)"), []byte("x"))
	require.NoError(t, err)
	require.Equal(t, "X", answer)
	hold.Release()
}

type tracer struct{ started, ended, failed int }

func (c *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.HasPrefix(data.SQL, "SELECT 1 /") {
		c.started++
	}
	return context.WithValue(ctx, c, true)
}

func (c *tracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	if ctx.Value(c) != nil {
		c.ended++
	}
	if _, ok := errors.AsType[*pgconn.PgError](data.Err); ok {
		c.failed++
	}
}

func TestAsk_tellsTheTracer(t *testing.T) {
	t.Parallel()
	told := new(tracer)
	b := setup(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = told })
	hold := b.pin(t)
	s := hold.NewStatement("divides", "SELECT 1 / $1::int")
	_, err := hold.RoundTrip(t.Context(), limit, s, []byte("1"))
	require.NoError(t, err)
	_, err = hold.RoundTrip(t.Context(), limit, s, []byte("0"))
	require.Error(t, err)
	require.Equal(t, tracer{started: 2, ended: 2, failed: 1}, *told)
	hold.Destroy()
}

// endPanics is a tracer that does so.
type endPanics struct{}

func (endPanics) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (endPanics) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { panic("boom") }

// With the panic alone the session would seem fit for another request, whose answer
// would be this one's.
func TestAsk_saysWhatFailedThoughTheTracerPanics(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = endPanics{} })
	for sql, message := range map[string]string{
		"SELECT 1 / ($1::int - 1)":                                   "22012",
		"SELECT pg_sleep($1::int * 60)":                              "did not answer within",
		"SELECT pg_terminate_backend(pg_backend_pid()) WHERE $1 = 1": "57P01",
	} {
		hold := b.pin(t)
		var told error
		hold.Panicked = func(err error) { told = err }
		_, err := hold.RoundTrip(t.Context(), time.Second, hold.NewStatement("fails", sql), []byte("1"))
		hold.Destroy()
		require.ErrorContains(t, err, message, sql)
		var panicked *connhold.PanicError
		require.NotErrorAs(t, err, &panicked, sql)
		require.ErrorAs(t, told, &panicked, sql)
	}
}
