package advisory

import (
	"context"
	"log/slog"
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

// Attempt is a call that locks.
type Attempt struct {
	Keys   []Key // as given
	Shared bool
	Try    bool          // of a method that does not wait for other sessions
	Waited time.Duration // from the call to its return
	Lock   *Lock         // nil if it was not granted
	Err    error         // nil if it was; see the method's comment otherwise
}

// End is the end of a hold.
type End struct {
	Lock *Lock
	Held time.Duration // from the grant to the end
	Err  error         // what Unlock returns: nil, or a [LostError] for a loss, or another
}

// attempted tells of a call that has come to its end.
func (l *Locker) attempted(ctx context.Context, a Attempt) {
	ctx = orBackground(ctx)
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
	if log := l.config.Logger; log != nil && log.Enabled(ctx, slog.LevelDebug) {
		message, attrs := "lock granted", []slog.Attr{
			slog.String("keys", list(a.Keys)), slog.Bool("shared", a.Shared), slog.Duration("waited", a.Waited),
		}
		if a.Err != nil {
			message, attrs = "lock not granted", append(attrs, slog.Any("error", a.Err))
		} else {
			attrs = append(attrs, slog.Uint64("pid", uint64(a.Lock.BackendPID())))
		}
		log.LogAttrs(ctx, slog.LevelDebug, message, attrs...)
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
		slog.String("keys", list(e.Lock.keys)), slog.Uint64("pid", uint64(e.Lock.seat.pid)), slog.Duration("held", e.Held),
	}
	if e.Err != nil {
		log.LogAttrs(context.Background(), slog.LevelWarn, "lock not held to the end", append(attrs, slog.Any("error", e.Err))...)
		return
	}
	log.LogAttrs(context.Background(), slog.LevelDebug, "lock released", attrs...)
}
