package advisory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Observer is told what happens to the locks of a [Locker], for metrics and
// traces. Its methods are called from many goroutines at the same time, and the
// call that they tell of waits for them: they must not block. They may call the
// methods of the Lock, and of its Locker or Session. A lock that is lost
// at once can have ended before its attempt is told of. Locks inside the caller's
// own transaction, as LockTx takes them, are not told of.
//
// A panic of theirs goes on in the call that they tell of; a lock that this has
// taken is unlocked before. Where no call waits, as at a loss, and in
// [Locker.Close], it is recovered: the Logger gets it, at level Error, or Close
// returns it. The same holds for the Logger's handler.
type Observer interface {
	// Attempted is called when a call that locks is about to return, from its
	// goroutine and with its context.
	Attempted(ctx context.Context, attempt Attempt)
	// Ended is called once for each lock that was granted, after its hold has
	// ended and, unless it was lost, the server has answered. At a loss nothing
	// waits for it: Unlock and Close may return before.
	Ended(end End)
}

// AttemptObserver is an [Observer] that is also told of calls that begin, so that
// it can show those that wait. [Config.Observer] takes one.
type AttemptObserver interface {
	Observer
	// Attempting is called when a call that locks begins, from its goroutine and
	// with its context. Attempted gets the context that it returns, which it
	// derives from ctx; the call itself does not.
	Attempting(ctx context.Context, attempt Attempt) context.Context
}

// Attempt is a call that locks. Of one that begins the fields from Waited on are
// not known, and neither is the slot of a [Semaphore].
type Attempt struct {
	Keys      []Key  // as given, or the slot of a semaphore that was granted
	Semaphore string // its name, if it is for a slot of one
	Shared    bool
	Try       bool   // of a method that does not wait for other sessions
	Lead      bool   // of Lead, for a term
	Server    Server // where the pool connects to

	Waited time.Duration // from the call to its return
	Lock   *Lock         // nil if it was not granted
	Token  int64         // that package fencing has drawn for the Lock; else 0
	Err    error         // nil if it was; see the method's comment otherwise
}

// Server says where a pool connects to.
type Server struct {
	// Host is a name, an address or the folder of a Unix socket: the first one
	// that the pool's configuration has. Port and Database go with it.
	Host     string
	Port     uint16
	Database string
	// Addr is the other end of the connection that holds the lock: the server's,
	// or that of what is in between. It is nil if no lock was granted.
	Addr net.Addr
}

// End is the end of a hold.
type End struct {
	Lock *Lock
	Held time.Duration // from the grant to the end
	Err  error         // what Unlock returns: nil, or a [LostError] for a loss, or another
}

// label names what the attempt is for.
func (a Attempt) label() string {
	if len(a.Keys) == 0 && a.Semaphore != "" {
		return fmt.Sprintf("semaphore %q", a.Semaphore)
	}
	return list(a.Keys)
}

// attempting tells of a call that begins, and returns the context to tell of its
// end with.
func (l *Locker) attempting(ctx context.Context, a Attempt) context.Context {
	ctx = orBackground(ctx)
	if o, ok := l.config.Observer.(AttemptObserver); ok {
		a.Server = l.server
		if told := o.Attempting(ctx, a); told != nil {
			return told
		}
	}
	return ctx
}

// attempted tells of a call that has come to its end.
func (l *Locker) attempted(ctx context.Context, a Attempt) {
	a.Server = l.server
	if a.Lock != nil {
		a.Server.Addr, a.Token = a.Lock.conn.addr, a.Lock.receipt
	}
	isTold := false
	defer func() { // a handler has panicked or ended the goroutine
		if !isTold && a.Lock != nil {
			_ = a.Lock.Unlock(ctx) // nobody else can
		}
	}()
	l.tellAttempt(ctx, a)
	isTold = true
}

func (l *Locker) tellAttempt(ctx context.Context, a Attempt) {
	if l.config.Observer != nil {
		l.config.Observer.Attempted(ctx, a)
	}
	level := attemptLevel(ctx, a.Err)
	if log := l.config.Logger; log != nil && log.Enabled(ctx, level) {
		message, attrs := "lock granted", []slog.Attr{
			slog.String("keys", a.label()), slog.Bool("shared", a.Shared), slog.Duration("waited", a.Waited),
		}
		if a.Err != nil {
			message, attrs = "lock not granted", append(attrs, slog.Any("error", a.Err))
		} else {
			attrs = append(attrs, slog.Uint64("pid", uint64(a.Lock.BackendPID())))
			if a.Token > 0 {
				attrs = append(attrs, slog.Int64("token", a.Token))
			}
		}
		log.LogAttrs(ctx, level, message, attrs...)
	}
}

// attemptLevel is Warn where something does not work: not for a lock that another
// holds, nor for a caller that gave up.
func attemptLevel(ctx context.Context, err error) slog.Level {
	switch {
	case err == nil, errors.Is(err, ErrNotAcquired), errors.Is(err, ErrClosed):
		return slog.LevelDebug
	case errors.Is(err, ErrPoolExhausted):
		return slog.LevelWarn
	case errors.Is(err, errConnecting) && errors.Is(err, context.DeadlineExceeded):
		return slog.LevelWarn // the server may be down
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return slog.LevelDebug
	default:
		return slog.LevelWarn
	}
}

// ended tells of a hold that has come to its end. The caller has let go of all
// that the methods of the lock might wait for.
func (l *Locker) ended(e End) {
	if l.config.Observer != nil {
		l.config.Observer.Ended(e)
	}
	log := l.config.Logger
	if log == nil {
		return
	}
	attrs := []slog.Attr{
		slog.String("keys", list(e.Lock.keys)), slog.Uint64("pid", uint64(e.Lock.conn.pid)), slog.Duration("held", e.Held),
	}
	if e.Err != nil {
		log.LogAttrs(context.Background(), slog.LevelWarn, "lock not held to the end", append(attrs, slog.Any("error", e.Err))...)
		return
	}
	log.LogAttrs(context.Background(), slog.LevelDebug, "lock released", attrs...)
}
