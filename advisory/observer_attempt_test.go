package advisory_test

import (
	"context"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// recorder is an AttemptObserver, of one goroutine.
type recorder struct {
	advisory.Observer
	begun, attempts []advisory.Attempt
}

type mark struct{}

func (r *recorder) Attempting(ctx context.Context, a advisory.Attempt) context.Context {
	r.begun = append(r.begun, a)
	return context.WithValue(ctx, mark{}, len(r.begun))
}

func (r *recorder) Attempted(ctx context.Context, a advisory.Attempt) {
	if ctx.Value(mark{}) != len(r.begun) {
		panic("not the context of its beginning")
	}
	r.attempts = append(r.attempts, a)
}

func (r *recorder) Ended(advisory.End) {}

// last is the only attempt since the last call.
func (r *recorder) last(t *testing.T) (begun, attempt advisory.Attempt) {
	t.Helper()
	require.Len(t, r.begun, 1)
	require.Len(t, r.attempts, 1)
	begun, attempt = r.begun[0], r.attempts[0]
	r.begun, r.attempts = nil, nil
	require.Nil(t, begun.Lock)
	return begun, attempt
}

func TestAttempt_saysWhatIsLockedAndWhere(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	b := setupConfig(t, &advisory.Config{Observer: r})
	c := b.pool.Config().ConnConfig
	key := advisory.Name("nightly")

	lock, err := b.locker.Lock(t.Context(), key)
	require.NoError(t, err)
	begun, a := r.last(t)
	require.Equal(t, []advisory.Key{key}, begun.Keys)
	require.Equal(t, advisory.Server{Host: c.Host, Port: c.Port, Database: c.Database}, begun.Server)
	require.Equal(t, lock, a.Lock)
	require.Equal(t, begun.Server.Host, a.Server.Host)
	if tcp, ok := a.Server.Addr.(*net.TCPAddr); ok {
		require.Equal(t, int(c.Port), tcp.Port)
	} else {
		require.NotNil(t, a.Server.Addr)
	}

	_, err = b.locker.TryRLock(t.Context(), key)
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	begun, a = r.last(t)
	require.True(t, begun.Shared && begun.Try && a.Shared && a.Try)
	require.Nil(t, a.Server.Addr)
	require.NoError(t, lock.Unlock(t.Context()))

	require.NoError(t, b.locker.Lead(t.Context(), key, func(context.Context, *advisory.Lock) error { return nil }))
	begun, a = r.last(t)
	require.True(t, begun.Lead && a.Lead)

	_, err = b.locker.LockAll(none, key)
	require.Error(t, err)
	_, a = r.last(t)
	require.Equal(t, err, a.Err)
}

func TestAttempt_ofASemaphoreIsForItsSlot(t *testing.T) {
	t.Parallel()
	r := &recorder{}
	b := setupConfig(t, &advisory.Config{Observer: r})
	lock, err := b.locker.Semaphore("workers", 1).TryAcquire(t.Context())
	require.NoError(t, err)
	begun, a := r.last(t)
	require.Equal(t, "workers", begun.Semaphore)
	require.Empty(t, begun.Keys)
	require.Equal(t, "workers", a.Semaphore)
	require.Equal(t, lock.Keys(), a.Keys)
	require.False(t, a.Shared)

	_, err = b.locker.Semaphore("workers", 1).TryAcquire(t.Context())
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	_, a = r.last(t)
	require.Equal(t, "workers", a.Semaphore)
	require.Empty(t, a.Keys)
	require.NoError(t, lock.Unlock(t.Context()))
}

// What an operator has to look at is above Debug, and nothing else.
func TestLogger_levels(t *testing.T) {
	t.Parallel()
	var levels []slog.Level
	config := &advisory.Config{Logger: slog.New(&logHandler{handle: func(r slog.Record) { levels = append(levels, r.Level) }})}
	b := setupConfig(t, config, maxConns(2))
	check := func(want slog.Level, what string) {
		t.Helper()
		require.Equal(t, []slog.Level{want}, levels, what)
		levels = nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	lock, err := b.locker.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	check(slog.LevelDebug, "granted")
	_, err = b.locker.TryLock(t.Context(), advisory.ID(1))
	require.ErrorIs(t, err, advisory.ErrNotAcquired)
	check(slog.LevelDebug, "held")
	_, err = b.locker.Lock(ctx, advisory.ID(1))
	require.ErrorIs(t, err, context.Canceled)
	check(slog.LevelDebug, "given up")
	_, err = b.locker.TryLock(t.Context(), advisory.ID(2))
	require.ErrorIs(t, err, advisory.ErrPoolExhausted)
	check(slog.LevelWarn, "the pool is exhausted")
	_, err = b.locker.TryLockAll(t.Context(), advisory.ID(2), advisory.ID(3))
	require.ErrorIs(t, err, advisory.ErrPoolExhausted)
	check(slog.LevelWarn, "the pool is exhausted")
	require.NoError(t, lock.Unlock(t.Context()))
	check(slog.LevelDebug, "unlocked")

	// Nobody listens on a port that was just closed.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().(*net.TCPAddr)
	require.NoError(t, listener.Close())
	down, err := advisory.New(poolTo(t, b, address), config)
	require.NoError(t, err)
	_, err = down.TryLock(t.Context(), advisory.ID(1))
	require.Error(t, err)
	check(slog.LevelWarn, "the server is down")
	require.NoError(t, down.Close(t.Context()))

	// One that takes connections and says nothing.
	listener, err = net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = listener.Close() }()
	silent, err := advisory.New(poolTo(t, b, listener.Addr().(*net.TCPAddr)), config)
	require.NoError(t, err)
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = silent.TryLock(ctx, advisory.ID(1))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	check(slog.LevelWarn, "the server is silent")
	require.NoError(t, silent.Close(t.Context()))
	_, err = silent.TryLock(t.Context(), advisory.ID(1))
	require.ErrorIs(t, err, advisory.ErrClosed)
	check(slog.LevelDebug, "closed")
}

// poolTo is a pool that connects to another address.
func poolTo(t *testing.T, b *bundle, address *net.TCPAddr) *pgxpool.Pool {
	t.Helper()
	return b.db.Pool(t, func(c *pgxpool.Config) {
		c.ConnConfig.Host, c.ConnConfig.Port, c.ConnConfig.Fallbacks = address.IP.String(), uint16(address.Port), nil
	})
}
