package advisory

import (
	"context"
	"errors"
	"log/slog"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// Handlers are code of others that is called here: the Observer, the Logger, and
// what is set on the pool. On a caller's goroutine its panic is the caller's. On
// one of the Locker's own it must not end the program.

// onOwnGoroutine calls fn, which calls handlers, on a goroutine of the Locker's.
func (l *Locker) onOwnGoroutine(fn func()) {
	if err := connhold.Protect(func() error { fn(); return nil }); err != nil {
		l.panicked(err)
	}
}

// logPanic logs a panic that is no call's error. The Logger itself may be what
// panics.
func (l *Locker) logPanic(err error) {
	if log := l.config.Logger; log != nil {
		_ = connhold.Protect(func() error {
			log.LogAttrs(context.Background(), slog.LevelError, "a handler panicked", slog.Any("error", err))
			return nil
		})
	}
}

func isPanic(err error) bool {
	_, ok := errors.AsType[*connhold.PanicError](err)
	return ok
}

// errNilContext is for a call that can do nothing without a context. Those that
// must have their effect, as Unlock must, take a nil one for context.Background.
var errNilContext = errors.New("the context is nil")

func orBackground(ctx context.Context) context.Context {
	if ctx == nil {
		return context.Background()
	}
	return ctx
}
