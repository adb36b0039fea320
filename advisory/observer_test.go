package advisory_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// observerFuncs is an Observer of functions, each of which may be nil.
type observerFuncs struct {
	attempted func(advisory.Attempt)
	ended     func(advisory.End)
}

func (o observerFuncs) Attempted(_ context.Context, a advisory.Attempt) {
	if o.attempted != nil {
		o.attempted(a)
	}
}

func (o observerFuncs) Ended(e advisory.End) {
	if o.ended != nil {
		o.ended(e)
	}
}

// within fails the test, with the state of all goroutines, if fn does not return.
func within(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		panic("hangs: " + what)
	}
}

// endings are the ways in which the hold of a lock ends, and return what the call
// that ends it does.
var endings = map[string]func(t *testing.T, b *bundle) error{
	"unlock": func(t *testing.T, b *bundle) error {
		t.Helper()
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(1))
		require.NoError(t, err)
		return lock.Unlock(t.Context())
	},
	"close": func(t *testing.T, b *bundle) error {
		t.Helper()
		_, err := b.locker.TryLock(t.Context(), advisory.ID(1))
		require.NoError(t, err)
		return b.locker.Close(t.Context())
	},
	"loss": func(t *testing.T, b *bundle) error {
		t.Helper()
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(1))
		require.NoError(t, err)
		b.terminate(t, lock.BackendPID())
		<-lock.Done()
		return nil
	},
	"unlock of a session's lock": func(t *testing.T, b *bundle) error {
		t.Helper()
		lock, err := b.openSession(t).TryLock(t.Context(), advisory.ID(1))
		require.NoError(t, err)
		return lock.Unlock(t.Context())
	},
	"close of the session": func(t *testing.T, b *bundle) error {
		t.Helper()
		s := b.openSession(t)
		_, err := s.TryLock(t.Context(), advisory.ID(1))
		require.NoError(t, err)
		return s.Close(t.Context())
	},
	"close with a session": func(t *testing.T, b *bundle) error {
		t.Helper()
		_, err := b.openSession(t).TryLock(t.Context(), advisory.ID(1))
		require.NoError(t, err)
		return b.locker.Close(t.Context())
	},
	"loss of the session": func(t *testing.T, b *bundle) error {
		t.Helper()
		lock, err := b.openSession(t).TryLock(t.Context(), advisory.ID(1))
		require.NoError(t, err)
		b.terminate(t, lock.BackendPID())
		<-lock.Done()
		return nil
	},
	"a session's round trip finds the loss": func(t *testing.T, b *bundle) error {
		t.Helper()
		s := b.openSession(t)
		lock, err := s.TryLock(t.Context(), advisory.ID(1))
		require.NoError(t, err)
		b.terminate(t, lock.BackendPID())
		_, err = s.TryLock(t.Context(), advisory.ID(2))
		require.Error(t, err)
		return nil
	},
}

func TestObserver_mayCallTheLockThatHasEnded(t *testing.T) {
	t.Parallel()
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := make(chan error, 1)
			var b *bundle
			b = setupConfig(t, &advisory.Config{Observer: observerFuncs{ended: func(e advisory.End) {
				ctx := context.Background()
				if e.Lock.Keys()[0] == advisory.ID(3) { // of the Observer's own
					return
				}
				unlocked := e.Lock.Unlock(ctx)
				if (unlocked == nil) != (e.Err == nil) && !errors.Is(unlocked, advisory.ErrClosed) {
					t.Errorf("told of %v, and Unlock says %v", e.Err, unlocked)
				}
				err := e.Lock.Tx(ctx, pgx.TxOptions{}, func(pgx.Tx) error { return errors.New("called") })
				if !errors.Is(err, e.Lock.Err()) {
					t.Errorf("Tx of a lock that has ended with %v: %v", e.Lock.Err(), err)
				}
				another, err := b.locker.TryLock(ctx, advisory.ID(3))
				if err == nil { // else the Locker is closed, or has no connection yet
					err = another.Unlock(ctx)
				} else {
					err = nil
				}
				told <- err
			}}})
			within(t, name, func() { require.NoError(t, end(t, b)) })
			select {
			case err := <-told:
				require.NoError(t, err)
			case <-time.After(time.Minute):
				t.Fatal("nobody was told")
			}
		})
	}
}

func TestObserver_mayCloseTheLockerAndTheSession(t *testing.T) {
	t.Parallel()
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := make(chan error, 1)
			var b *bundle
			b = setupConfig(t, &advisory.Config{Observer: observerFuncs{ended: func(advisory.End) {
				told <- b.locker.Close(context.Background())
			}}})
			within(t, name, func() { require.NoError(t, end(t, b)) })
			within(t, "Ended", func() { <-told })
			b.noLockLeft(t)
		})
	}
}

// panicking returns whether fn has panicked with boom.
func panicking(fn func()) (value any) {
	defer func() { value = recover() }()
	fn()
	return nil
}

var errBoom = errors.New("boom")

func TestObserver_panicOfAttemptedLeavesNoLock(t *testing.T) {
	t.Parallel()
	b := setupConfig(t, &advisory.Config{Observer: observerFuncs{attempted: func(advisory.Attempt) { panic(errBoom) }}})
	s := &advisory.Session{}
	require.Equal(t, errBoom, panicking(func() {
		opened, err := b.locker.Session(t.Context())
		require.NoError(t, err)
		s = opened
		_, _ = s.TryLock(t.Context(), advisory.ID(1))
	}))
	require.NoError(t, s.Close(t.Context()))
	for name, call := range map[string]func() (*advisory.Lock, error){
		"TryLock": func() (*advisory.Lock, error) { return b.locker.TryLock(t.Context(), advisory.ID(1)) },
		"Lock":    func() (*advisory.Lock, error) { return b.locker.Lock(t.Context(), advisory.ID(1)) },
		"TryLockAll": func() (*advisory.Lock, error) {
			return b.locker.TryLockAll(t.Context(), advisory.ID(1), advisory.ID(2))
		},
		"TryAcquire": func() (*advisory.Lock, error) { return b.locker.Semaphore("s", 1).TryAcquire(t.Context()) },
		"Lead": func() (*advisory.Lock, error) {
			return nil, b.locker.Lead(t.Context(), advisory.ID(1), func(context.Context, *advisory.Lock) error { return nil })
		},
	} {
		require.Equal(t, errBoom, panicking(func() { _, _ = call() }), name)
		require.Zero(t, b.granted(t), name)
		require.Empty(t, advisory.Leftovers(b.locker), name)
	}
}

func TestObserver_panicOfEnded(t *testing.T) {
	t.Parallel()
	for name, end := range endings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			told := make(chan struct{}, 2)
			logged := make(chan string, 2)
			b := setupConfig(t, &advisory.Config{
				Logger: slog.New(&logHandler{handle: func(r slog.Record) {
					if r.Level == slog.LevelError {
						r.Attrs(func(a slog.Attr) bool { logged <- a.Value.String(); return true })
					}
				}}),
				Observer: observerFuncs{ended: func(advisory.End) {
					told <- struct{}{}
					panic(errBoom)
				}},
			})
			var failed error
			value := panicking(func() { failed = end(t, b) })
			within(t, "Ended", func() { <-told })
			if value != any(errBoom) && !errors.Is(failed, errBoom) { // else the caller has got it
				within(t, "the Logger", func() { require.Contains(t, <-logged, "boom") })
			}
			_ = b.locker.Close(t.Context())
			b.noLockLeft(t)
			b.eventually(t, "nothing is left", func() bool { return advisory.Leftovers(b.locker) == "" })
		})
	}
}

// logHandler is a handler of a function.
type logHandler struct{ handle func(slog.Record) }

func (*logHandler) Enabled(context.Context, slog.Level) bool { return true }
func (h *logHandler) Handle(_ context.Context, r slog.Record) error {
	h.handle(r)
	return nil
}
func (h *logHandler) WithAttrs([]slog.Attr) slog.Handler { return h }
func (h *logHandler) WithGroup(string) slog.Handler      { return h }

func TestLogger_panicLeavesNoLockAndDoesNotEndTheProgram(t *testing.T) {
	t.Parallel()
	var calm atomic.Bool
	called := make(chan string, 10)
	b := setupConfig(t, &advisory.Config{Logger: slog.New(&logHandler{handle: func(r slog.Record) {
		if !calm.Load() {
			called <- r.Message
			panic(errBoom)
		}
	}})})
	require.Equal(t, errBoom, panicking(func() { _, _ = b.locker.TryLock(t.Context(), advisory.ID(1)) }))
	b.leakCheck(t)
	require.Equal(t, "lock granted", <-called)
	require.Equal(t, "lock released", <-called)
	calm.Store(true)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	calm.Store(false)
	b.terminate(t, lock.BackendPID())
	require.Equal(t, "lock not held to the end", <-called, "on the watch's goroutine")
	require.Equal(t, "a handler panicked", <-called)
	require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost)
	b.leakCheck(t)
}
