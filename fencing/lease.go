package fencing

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Lease is one holding of a resource: its lock and the token that came with
// it. It is safe for concurrent use, and so are any number of stamped transactions at
// the same time.
//
// A Lease whose lock is lost or unlocked still stamps: what its token is worth
// the database decides, at each write.
type Lease struct {
	holding
	fencer *Fencer
}

// holding is what a source has granted.
type holding struct {
	lock     held
	session  *advisory.Lock // the same lock, if a session of PostgreSQL's holds it
	resource string
	token    Token
}

// held is what any lock can do.
type held interface {
	Unlock(ctx context.Context) error
	Done() <-chan struct{}
	Err() error
	Context(parent context.Context) (context.Context, context.CancelFunc)
}

// Token is the number of this holding.
func (l *Lease) Token() Token { return l.token }

// Resource is the name of what is held.
func (l *Lease) Resource() string { return l.resource }

// Done returns a channel that is closed once the lock is not held any more, for all
// that is known here; see [advisory.Lock.Done]. That it is open does not prove that the
// lock is held.
func (l *Lease) Done() <-chan struct{} { return l.held().Done() }

// Err returns nil while the lock is held for all that is known here, and then what
// ended it first; see [advisory.Lock.Err].
func (l *Lease) Err() error { return l.held().Err() }

// Context returns a context that ends with parent, with the lock, or when cancel is
// called; see [advisory.Lock.Context].
func (l *Lease) Context(parent context.Context) (context.Context, context.CancelFunc) {
	return l.held().Context(parent)
}

// Unlock ends the hold and frees the lock; see [advisory.Lock.Unlock]. The token stays
// the current one until the next is drawn.
func (l *Lease) Unlock(ctx context.Context) error { return l.held().Unlock(ctx) }

// SafeUntil is when the lock ends for its holder, unless it is renewed before. It is
// the zero time for a lock that a session holds, which no time ends.
func (l *Lease) SafeUntil() time.Time {
	if o, ok := l.lock.(interface{ SafeUntil() time.Time }); ok {
		return o.SafeUntil()
	}
	return time.Time{}
}

// AdvisoryLock is the lock as package advisory knows it, or nil if no session of
// PostgreSQL's holds it: then the Fencer is one of [NewOver].
func (l *Lease) AdvisoryLock() *advisory.Lock { return l.session }

// BackendPID is the process id of the server backend whose session holds the lock, or 0
// if none does.
func (l *Lease) BackendPID() uint32 { return l.session.BackendPID() }

// Tx runs a transaction on the session that holds the lock, as [advisory.Lock.Tx] does.
// It returns [ErrNoSession], without calling fn, if no session of PostgreSQL's holds it.
// The transaction is not stamped.
func (l *Lease) Tx(ctx context.Context, options pgx.TxOptions, fn func(pgx.Tx) error) error {
	if l.session == nil && l.lock != nil {
		return ErrNoSession
	}
	return l.session.Tx(ctx, options, fn)
}

// held is the lock, or one that says that it is none if no Fencer made the Lease.
func (l *Lease) held() held {
	if l.lock == nil {
		return (*advisory.Lock)(nil)
	}
	return l.lock
}

// Stamp lets the transaction write to the tables that are guarded for the
// resource, for as long as the token is the current one. It takes one round
// trip. tx may be of any connection to the database of the guarded tables; its
// other settings stay as they are, but it may not sit idle for longer than
// [Config.MaxIdle].
//
// An error of the server leaves the transaction failed. Errors of the writes themselves come
// from pgx; [Translate] says what they mean.
func (l *Lease) Stamp(ctx context.Context, tx pgx.Tx) error {
	if l.fencer == nil { // not from a Fencer: there is no token, and stamp says so
		return stamp(ctx, tx, l.resource, 0, defaultMaxIdle)
	}
	return stamp(ctx, tx, l.resource, l.Token(), l.fencer.config.MaxIdle)
}

// Stamp stamps a transaction as [Lease.Stamp] does, for a worker that was
// handed the resource and the token and not the Lease. It may sit idle for one
// minute.
func Stamp(ctx context.Context, tx pgx.Tx, resource string, token Token) error {
	return stamp(ctx, tx, resource, token, defaultMaxIdle)
}

func stamp(ctx context.Context, tx pgx.Tx, resource string, token Token, maxIdle time.Duration) error {
	switch {
	case ctx == nil: // pgx would leave the transaction's connection locked
		return fmt.Errorf("fencing: stamp for resource %q: %w", resource, errNilContext)
	case token <= 0:
		return fmt.Errorf("fencing: stamp for resource %q: token %d is not valid: tokens start at 1", resource, token)
	}
	if _, err := tx.Exec(ctx, stampSQL, resource, int64(token), maxIdle); err != nil {
		return fmt.Errorf("fencing: stamp for resource %q: %w", resource, Translate(err))
	}
	return nil
}
