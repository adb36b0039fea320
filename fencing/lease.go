package fencing

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// Lease is one holding of a resource: its lock and the token that came with
// it. The lock's methods are the Lease's own. It is safe for concurrent use,
// and so are any number of stamped transactions at the same time.
//
// A Lease whose lock is lost or unlocked still stamps: what its token is worth
// the database decides, at each write.
type Lease struct {
	*advisory.Lock
	fencer   *Fencer
	resource string
}

// Token is the number of this holding.
func (l *Lease) Token() Token { return Token(l.Receipt()) }

// Resource is the name of what is held.
func (l *Lease) Resource() string { return l.resource }

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
	if token <= 0 {
		return fmt.Errorf("fencing: stamp for resource %q: token %d is not valid: tokens start at 1", resource, token)
	}
	if _, err := tx.Exec(ctx, stampSQL, resource, int64(token), maxIdle); err != nil {
		return fmt.Errorf("fencing: stamp for resource %q: %w", resource, Translate(err))
	}
	return nil
}
