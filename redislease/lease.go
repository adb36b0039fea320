package redislease

import (
	"context"
	"sync"
	"time"
)

// Lease is a lock that Redis keeps for a holder until a time, which renewals move
// on in the background. It is for one use: once it has ended it stays ended. All
// methods are safe for concurrent use, and for calls on a nil Lease.
//
// A Lease can end at any time: when no renewal succeeds, because Redis or the network
// is down or this process or its machine stood still; when a restart, a failover or
// somebody's DEL has lost the key. In the first case the holder learns of it before
// Redis lets go, as long as the clocks differ by less than [Config.Margin]. In the second
// it learns of it at the next renewal, and two believe until then that they hold.
// What must not be written twice needs a fence; see the package's documentation.
type Lease struct {
	leaser   *Leaser
	resource string
	lock     string // its key
	owner    string
	token    int64

	// mu guards the fields below. Nothing blocks under it.
	mu        sync.Mutex
	confirmed time.Duration // when the last request that succeeded was sent
	safeUntil time.Duration
	lastUntil time.Duration // by Config.MaxHold; 0 without
	cause     error         // of the end, once it has ended
	ctx       context.Context
	cancel    context.CancelCauseFunc

	unlocking sync.Once
	result    error // of Unlock
}

// Token is the number of this holding. Tokens of one resource grow with every
// holding, for as long as Redis keeps its data.
func (l *Lease) Token() int64 {
	if l == nil {
		return 0
	}
	return l.token
}

// Resource is the name of what is held.
func (l *Lease) Resource() string {
	if l == nil {
		return ""
	}
	return l.resource
}

// SafeUntil is when the lease ends for its holder, as far as is known now; renewals
// move it on. It is the wall clock's time, without a monotonic reading, so that
// time in which the machine sleeps counts. Err judges by a clock that nobody sets. It is
// the zero time for a nil Lease.
func (l *Lease) SafeUntil() time.Time {
	if l == nil {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return time.Now().Add(l.until() - l.leaser.now()).Round(0)
}

// until is the end as far as is known. mu must be held.
func (l *Lease) until() time.Duration {
	if l.lastUntil > 0 {
		return min(l.safeUntil, l.lastUntil)
	}
	return l.safeUntil
}

// Done returns a channel that is closed once the lease has ended: when Unlock or
// [Leaser.Close] begins, when a loss is noticed, and at SafeUntil.
func (l *Lease) Done() <-chan struct{} {
	if l == nil {
		return closedChan
	}
	return l.context().Done()
}

// Err returns nil while the lease can be trusted, and then what ended it first:
// [ErrUnlocked], [ErrClosed] or a [LostError]. It reads the clock: a process that
// goes on after it was stopped learns it here first. It does not ask Redis.
func (l *Lease) Err() error {
	if l == nil {
		return ErrNotOwner
	}
	l.expire()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cause
}

// Context returns a context that ends with parent, with the lease, or when cancel is
// called. [context.Cause] tells why: it is what Err returns if the lease ended first. The
// caller must call cancel to free its resources.
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	if err := l.Err(); err != nil {
		cancel(err)
		return ctx, func() {}
	}
	own := l.context()
	stop := context.AfterFunc(own, func() { cancel(context.Cause(own)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// context returns a context that ends with the lease. It is made when somebody asks
// for it: most leases are gone before that.
func (l *Lease) context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.cancel = context.WithCancelCause(context.Background())
		if l.cause != nil {
			l.cancel(l.cause)
		}
	}
	return l.ctx
}

// end notes the cause, unless there is one already, and ends the context. It reports
// whether this call ended the lease.
func (l *Lease) end(cause error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause != nil {
		return false
	}
	l.cause = cause
	if l.ctx != nil {
		l.cancel(cause) // nothing that hangs on it takes mu
	}
	return true
}

// expire ends the lease if its time has come.
func (l *Lease) expire() {
	l.mu.Lock()
	isOver := l.cause == nil && l.leaser.now() >= l.until()
	reason := LostExpired
	if isOver && l.lastUntil > 0 && l.lastUntil <= l.safeUntil {
		reason = LostMaxHold
	}
	l.mu.Unlock()
	if isOver {
		l.lose(reason, nil)
	}
}

// confirm notes that Redis holds the lease for a TTL from a time after sent. It
// comes too late for a lease that has ended.
func (l *Lease) confirm(sent time.Duration) {
	l.expire()
	l.mu.Lock()
	defer l.mu.Unlock()
	if sent > l.confirmed {
		l.confirmed = sent
		l.safeUntil = sent + l.leaser.config.trusted()
	}
}

// lose ends the lease as lost.
func (l *Lease) lose(reason LostReason, cause error) {
	err := &LostError{Resource: l.resource, Reason: reason, Cause: cause}
	if l.end(err) {
		l.leaser.keeper.remove(l)
		l.leaser.config.Logger.Warn("lease not held to the end", "resource", l.resource, "token", l.token, "error", err)
	}
}

// Check asks Redis whether it holds the lock for this lease, and renews the lease if
// so. It returns nil if the lease is held and can be trusted; what Err returns, if it has
// ended or Redis says that it is lost; ErrUnavailable or ctx's error if Redis did not
// say. It returns soon after ctx has ended.
func (l *Lease) Check(ctx context.Context) error {
	if err := l.Err(); err != nil {
		return err
	}
	if err := l.leaser.keeper.check(ctx, l); err != nil {
		return wrap("check", l.resource, err)
	}
	return l.Err()
}

var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()
