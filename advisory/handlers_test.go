package advisory_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
)

// hooks is a pool with a handler of each kind, all of which panic when they are
// set to.
type hooks struct{ armed atomic.Pointer[string] }

func (h *hooks) call(name string) {
	if armed := h.armed.Load(); armed != nil && *armed == name {
		panic(errBoom)
	}
}

func (h *hooks) arm(name string) { h.armed.Store(&name) }

func (h *hooks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	h.call("tracer, start")
	return ctx
}

func (h *hooks) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {
	h.call("tracer, end")
}

func (h *hooks) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	h.call("tracer, acquire")
	return ctx
}
func (h *hooks) TraceAcquireEnd(context.Context, *pgxpool.Pool, pgxpool.TraceAcquireEndData) {}

func (h *hooks) set(c *pgxpool.Config) {
	// What pgx calls on goroutines of its own it does not recover.
	c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false }
	c.ConnConfig.Tracer = h
	c.ConnConfig.RuntimeParams["client_min_messages"] = "debug5" // a notice for each statement, and more
	c.ConnConfig.OnNotice = func(*pgconn.PgConn, *pgconn.Notice) { h.call("OnNotice") }
	c.ConnConfig.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) { h.call("OnNotification") }
}

func TestHandlers_panicCostsTheCallOnly(t *testing.T) {
	direct(t, "it passes no client_min_messages on")
	t.Parallel()
	key := advisory.Name("one")
	for _, hook := range []string{"tracer, start", "tracer, end", "tracer, acquire", "OnNotice"} {
		for name, call := range map[string]func(ctx context.Context, b *bundle) (*advisory.Lock, error){
			"TryLock":  func(ctx context.Context, b *bundle) (*advisory.Lock, error) { return b.locker.TryLock(ctx, key) },
			"Lock":     func(ctx context.Context, b *bundle) (*advisory.Lock, error) { return b.locker.Lock(ctx, key) },
			"TryRLock": func(ctx context.Context, b *bundle) (*advisory.Lock, error) { return b.locker.TryRLock(ctx, key) },
			"TryLockAll": func(ctx context.Context, b *bundle) (*advisory.Lock, error) {
				return b.locker.TryLockAll(ctx, key, advisory.ID(2))
			},
			"LockAll": func(ctx context.Context, b *bundle) (*advisory.Lock, error) {
				return b.locker.LockAll(ctx, key, advisory.ID(2))
			},
			"Acquire": func(ctx context.Context, b *bundle) (*advisory.Lock, error) {
				return b.locker.Semaphore("s", 2).Acquire(ctx)
			},
			"Session": func(ctx context.Context, b *bundle) (*advisory.Lock, error) {
				_, err := b.locker.Session(ctx)
				return nil, err
			},
		} {
			if (name == "Acquire" || name == "Session") && strings.HasPrefix(hook, "tracer, ") && hook != "tracer, acquire" {
				continue // pgx's tracer is not told of a script
			}
			t.Run(hook+"/"+name, func(t *testing.T) {
				t.Parallel()
				h := &hooks{}
				b := setup(t, h.set)
				require.NoError(t, b.pool.Ping(t.Context()))
				for _, state := range []string{"on a new connection", "on one that was met"} {
					h.arm(hook)
					within(t, name+" "+state, func() {
						_, err := call(t.Context(), b)
						require.ErrorIs(t, err, errBoom, state)
						require.ErrorContains(t, err, "a handler panicked")
					})
					h.arm("")
					b.noLockLeft(t)
					within(t, "the next call", func() {
						lock, err := b.locker.TryLock(t.Context(), key)
						require.NoError(t, err, state)
						require.NoError(t, lock.Unlock(t.Context()))
					})
				}
				b.leakCheck(t)
				require.Empty(t, advisory.Leftovers(b.locker))
			})
		}
	}
}

func TestHandlers_panicDuringAWait(t *testing.T) {
	direct(t, "it passes no client_min_messages on")
	t.Parallel()
	h := &hooks{}
	b := setup(t, h.set)
	other := b.session(t)
	exec(t, other, "SELECT pg_advisory_lock(1)")
	failed := make(chan error, 1)
	go func() {
		_, err := b.locker.Lock(t.Context(), advisory.ID(1))
		failed <- err
	}()
	b.eventually(t, "it waits on the server", func() bool { return b.waiting(t) == 1 })
	h.arm("OnNotice")
	require.ErrorIs(t, <-failed, errBoom)
	h.arm("")
	exec(t, other, "SELECT pg_advisory_unlock(1)")
	lock, err := b.locker.Lock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
	b.leakCheck(t)
}

// The lock of an Unlock that fails so is free all the same, and so is its key.
func TestHandlers_panicDuringUnlock(t *testing.T) {
	direct(t, "it passes no client_min_messages on")
	t.Parallel()
	for _, hook := range []string{"tracer, start", "tracer, end", "OnNotice"} {
		h := &hooks{}
		b := setup(t, h.set)
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(1))
		require.NoError(t, err)
		h.arm(hook)
		within(t, "Unlock", func() { require.ErrorIs(t, lock.Unlock(t.Context()), errBoom, hook) })
		h.arm("")
		require.ErrorIs(t, lock.Unlock(t.Context()), errBoom)
		b.leakCheck(t)
		within(t, "Lock", func() {
			lock, err := b.locker.Lock(t.Context(), advisory.ID(1))
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(t.Context()))
		})
	}
}

// A Session's other locks stay held.
func TestHandlers_panicInASession(t *testing.T) {
	direct(t, "it passes no client_min_messages on")
	t.Parallel()
	for _, hook := range []string{"tracer, start", "tracer, end"} {
		h := &hooks{}
		b := setup(t, h.set)
		s := b.openSession(t)
		kept, err := s.TryRLock(t.Context(), advisory.ID(1))
		require.NoError(t, err)
		freed, err := s.TryLock(t.Context(), advisory.ID(2))
		require.NoError(t, err)
		h.arm(hook)
		within(t, "calls", func() {
			_, err = s.TryLock(t.Context(), advisory.ID(3))
			require.ErrorIs(t, err, errBoom, hook)
			require.ErrorIs(t, freed.Unlock(t.Context()), errBoom, hook)
		})
		h.arm("")
		require.Equal(t, 1, b.granted(t), hook)
		require.NoError(t, kept.Err())
		again, err := s.TryLockAll(t.Context(), advisory.ID(2), advisory.ID(3))
		require.NoError(t, err)
		require.NoError(t, again.Unlock(t.Context()))
		require.NoError(t, kept.Unlock(t.Context()))
		require.NoError(t, s.Close(t.Context()))
		b.leakCheck(t)
	}
}

// On the watch's goroutine, where nobody called anything.
func TestHandlers_panicWhileTheSessionIdles(t *testing.T) {
	direct(t, "it passes no client_min_messages on")
	t.Parallel()
	h := &hooks{}
	logged := make(chan string, 10)
	b := setupConfig(t, &advisory.Config{
		Heartbeat: 20 * time.Millisecond, HeartbeatTimeout: time.Minute,
		Logger: slog.New(&logHandler{handle: func(r slog.Record) {
			if r.Level == slog.LevelError {
				logged <- r.Message
			}
		}}),
	}, h.set)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	require.NoError(t, advisory.ExecOnSession(lock, "LISTEN ring"))
	h.arm("OnNotification")
	for range 20 { // also in the middle of a heartbeat
		exec(t, b.session(t), "NOTIFY ring")
		within(t, "the Logger", func() { require.Equal(t, "a handler panicked", <-logged) })
	}
	h.arm("")
	require.NoError(t, lock.Unlock(t.Context()))
	b.leakCheck(t)
}

// An answer that came too late must not be taken for that to the next question, though
// the tracer panics at the first.
func TestHandlers_panicDoesNotHideThatASessionIsLost(t *testing.T) {
	t.Parallel()
	h := &hooks{}
	b := setup(t)
	proxy := b.proxy(t)
	_, locker := b.another(t, &advisory.Config{Heartbeat: time.Second, HeartbeatTimeout: 2 * time.Second},
		through(proxy), func(c *pgxpool.Config) { c.ConnConfig.Tracer = h })
	s, err := locker.Session(t.Context())
	require.NoError(t, err)
	lock, err := s.TryLock(t.Context(), advisory.ID(1)) // which prepares the statement
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
	exec(t, b.session(t), "SELECT pg_advisory_lock(3)")

	h.arm("tracer, end")
	proxy.Delay(faultproxy.ToClient, 3*time.Second)
	_, err = s.TryLock(t.Context(), advisory.ID(2))
	require.Error(t, err)
	h.arm("")
	_, err = s.TryLock(t.Context(), advisory.ID(3))
	require.ErrorIs(t, err, advisory.ErrLost, "another session has it")
}
