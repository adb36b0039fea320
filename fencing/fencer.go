package fencing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/critical"
	"github.com/pgadvisory/pgadvisory/internal/grant"
)

// Token is the number of one holding of a resource. Tokens of one resource
// grow with every holding, also through a crash of the server and through a
// failover that lost the last of them. The first is 1; 0 and below are not
// tokens.
type Token int64

// Config is how a [Fencer] behaves. The zero Config, and a nil one, mean the
// documented defaults.
type Config struct {
	// MaxIdle is how long a stamped transaction may sit idle before the
	// server ends its session, unless idle_in_transaction_session_timeout is
	// shorter already. A next holder of the resource waits for the stamped
	// transactions in which an earlier one has written. Defaults to 1 minute;
	// the server counts in milliseconds.
	MaxIdle time.Duration

	// Observer is told of the writes by [Lease.InTx], [Lease.Exec] and
	// [Lease.SendBatch] that the database refuses. Defaults to nobody. It is
	// [advisory.Config] that has the Observer of the locks.
	Observer Observer
}

const defaultMaxIdle = time.Minute

// Fencer takes locks that come with a token. It is safe for concurrent use.
type Fencer struct {
	source source
	config Config
}

// source is what a Fencer's locks come from.
type source interface {
	// lock takes the lock of a resource with a token, and waits for it or not. On an
	// error nothing is kept.
	lock(ctx context.Context, resource string, waits bool) (holding, error)
	// lead calls fn in each term.
	lead(ctx context.Context, resource string, fn func(context.Context, holding) error) error
}

// New returns a Fencer that locks with locker. The guarded tables, and the
// schema fencing, must be in the database that the locker's pool connects to.
// A nil config means the defaults. New does not connect: that fencing is not
// installed is found by the first lock.
func New(locker *advisory.Locker, config *Config) (*Fencer, error) {
	if locker == nil {
		return nil, errors.New("fencing: New needs a locker, and got nil")
	}
	return newFencer(sessions{grant.LocksOf[advisory.Key, *advisory.Lock](locker)}, config)
}

func newFencer(source source, config *Config) (*Fencer, error) {
	f := &Fencer{source: source}
	if config != nil {
		f.config = *config
	}
	switch d := f.config.MaxIdle; {
	case d == 0:
		f.config.MaxIdle = defaultMaxIdle
	case d < time.Millisecond:
		return nil, fmt.Errorf("fencing: Config.MaxIdle is %s; it can't be below 1ms, and 0 means %s", d, defaultMaxIdle)
	}
	return f, nil
}

// TryLock takes the lock of a resource if it is free, and draws the token in
// the same round trip. Once it returns, writes that carry an earlier token of
// the resource are refused, even if nothing is written with the new one. The
// resource's lock is that of [advisory.Name].
//
// ctx, and errors, are as with [advisory.Locker.TryLock]; besides, the error is
// [ErrNotInstalled], or ErrNotAcquired when the lock is free while a
// transaction in which an earlier holder has written is still open after
// 200 ms, or the marks are locked, as by fencing.rebase. On an error no lock is kept.
func (f *Fencer) TryLock(ctx context.Context, resource string) (*Lease, error) {
	return f.lease(f.source.lock(ctx, resource, false))
}

// Lock waits until the lock of a resource is granted or ctx ends, as
// [advisory.Locker.Lock] does, and draws the token in the round trip that
// grants it. If transactions in which an earlier holder has written are still
// open, it waits for their end too, holding the lock meanwhile; how long they
// may sit idle, [Config.MaxIdle] bounds. Errors are as with TryLock.
func (f *Fencer) Lock(ctx context.Context, resource string) (*Lease, error) {
	return f.lease(f.source.lock(ctx, resource, true))
}

// Do waits for the lock as Lock does, calls fn while holding it and unlocks
// after fn has returned, as [advisory.Locker.Do] does.
func (f *Fencer) Do(ctx context.Context, resource string, fn func(context.Context, *Lease) error) error {
	lease, err := f.Lock(ctx, resource)
	if err != nil {
		return err
	}
	return critical.Run(ctx, lease, fn)
}

// TryDo is Do with TryLock: it returns ErrNotAcquired without calling fn when
// another holds the lock.
func (f *Fencer) TryDo(ctx context.Context, resource string, fn func(context.Context, *Lease) error) error {
	lease, err := f.TryLock(ctx, resource)
	if err != nil {
		return err
	}
	return critical.Run(ctx, lease, fn)
}

// Lead makes this process a candidate of whom one leads at a time, as
// [advisory.Locker.Lead] does. Each term comes with a token of its own, higher
// than all before it.
func (f *Fencer) Lead(ctx context.Context, resource string, fn func(context.Context, *Lease) error) error {
	err := f.source.lead(ctx, resource, func(ctx context.Context, h holding) error {
		return fn(ctx, &Lease{holding: h, fencer: f})
	})
	return Translate(err)
}

func (f *Fencer) lease(h holding, err error) (*Lease, error) {
	if err != nil {
		return nil, Translate(err)
	}
	return &Lease{holding: h, fencer: f}, nil
}

// sessions are locks of PostgreSQL's, each with the session that holds it.
type sessions struct {
	locks grant.Locks[advisory.Key, *advisory.Lock]
}

func (s sessions) lock(ctx context.Context, resource string, waits bool) (holding, error) {
	lock := s.locks.TryLock
	if waits {
		lock = s.locks.Lock
	}
	k, token, err := lock(ctx, advisory.Name(resource), issue(resource))
	if err != nil {
		return holding{}, err
	}
	return heldBy(k, resource, token), nil
}

func (s sessions) lead(ctx context.Context, resource string, fn func(context.Context, holding) error) error {
	return s.locks.Lead(ctx, advisory.Name(resource), issue(resource), func(ctx context.Context, k *advisory.Lock, token int64) error {
		return fn(ctx, heldBy(k, resource, token))
	})
}

func issue(resource string) grant.Issue { return grant.Issue{Func: issueFunc, Arg: resource} }

func heldBy(k *advisory.Lock, resource string, token int64) holding {
	return holding{lock: k, session: k, resource: resource, token: Token(token)}
}
