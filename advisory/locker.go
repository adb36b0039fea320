package advisory

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/internal/grant"
)

// Locker takes advisory locks, each on a connection of its own that it pins
// for as long as the lock is held. Use one Locker for each pool. It is safe
// for concurrent use.
type Locker struct {
	pool   *pgxpool.Pool
	owned  bool // Close closes the pool
	config Config
	size   int // of the pool
	limit  int // connections that may be pinned at once

	work sync.WaitGroup // goroutines that contend for a lock

	// mu guards the fields below, and those of every line. Nothing blocks
	// under it: no statement, no wait for a connection, no callback.
	mu     sync.Mutex
	closed bool
	pinned int // connections pinned or being waited for
	lines  map[tag]*line
	// changed is closed, and made anew, when a connection may have become free
	// for a lock, or is not going to.
	changed chan struct{}
}

// New returns a Locker that pins connections of pool, which may be the
// application's or one that is kept for locks. It does not connect. A nil
// config means the defaults; see [Config]. The pool must allow at least one
// connection more than the reserve. Its BeforeClose is not called for
// connections that the Locker closes.
func New(pool *pgxpool.Pool, config *Config) (*Locker, error) {
	if pool == nil {
		return nil, errors.New("advisory: New needs a pool, and got nil")
	}
	return newLocker(pool, config, defaultReserve)
}

// Open returns a Locker on a small pool of its own, which [Locker.Close]
// closes. The connection string is that of [pgxpool.ParseConfig]; its
// pool_max_conns is how many locks can be held at once, by default 4 or the
// number of CPUs if that is greater. Open connects once, so that a wrong address or password is
// reported here; ctx bounds that.
func Open(ctx context.Context, connString string, config *Config) (*Locker, error) {
	pool, err := pgxpool.New(ctx, connString)
	if err != nil {
		return nil, fmt.Errorf("advisory: open: %w", err)
	}
	locker, err := newLocker(pool, config, 0)
	if err != nil {
		pool.Close()
		return nil, err
	}
	if err := pool.Ping(ctx); err != nil {
		pool.Close()
		return nil, fmt.Errorf("advisory: open: %w", err)
	}
	locker.owned = true
	return locker, nil
}

func newLocker(pool *pgxpool.Pool, config *Config, reserve int) (*Locker, error) {
	c, err := config.withDefaults(reserve)
	if err != nil {
		return nil, err
	}
	size := int(pool.Stat().MaxConns())
	if size <= c.Reserve {
		return nil, fmt.Errorf("advisory: a pool of %d connections with Config.Reserve %d leaves none for locks: "+
			"set pool_max_conns to at least %d", size, c.Reserve, c.Reserve+1)
	}
	return &Locker{
		pool: pool, config: c, size: size, limit: size - c.Reserve,
		lines: make(map[tag]*line), changed: make(chan struct{}),
	}, nil
}

// TryLock takes the lock if it is free. Once it has a connection of the pool, it
// answers in one round trip; without any, when this Locker holds the lock or is
// asking for it already.
//
// ctx bounds the call, and the wait for the pool with it, and not the hold. On
// an error no lock is kept: ErrNotAcquired when another holds the lock;
// ErrPoolExhausted, ErrInvalidKey or ErrClosed; ctx's error when ctx ends
// first; else what pgx said. A server that can't be reached may keep the lock
// for a session that it has not given up yet.
func (l *Locker) TryLock(ctx context.Context, key Key) (*Lock, error) {
	return l.TryLockIssuing(ctx, key, grant.Issue{})
}

// Lock waits until the lock is granted or ctx ends.
//
// Calls of one Locker for one key are served in the order in which they came,
// and use one connection together while they wait; between sessions PostgreSQL
// decides, and the order is not strict. A waiting session asks anew about
// three times a second, so that it delays neither VACUUM nor CREATE INDEX
// CONCURRENTLY by more than that. It needs the language plpgsql, which every
// database has by default. The lock is not re-entrant: a call that waits for a
// lock which its own goroutine holds waits until ctx ends.
//
// ctx bounds the wait and not the hold. Errors are as with TryLock, but for
// ErrNotAcquired; ctx's says what was waited for. When the grant and the end of
// ctx meet, either may win. A wait that was given up can still get the lock on
// the server, for the moment that it takes to give it back.
func (l *Locker) Lock(ctx context.Context, key Key) (*Lock, error) {
	return l.LockIssuing(ctx, key, grant.Issue{})
}

// TryLockIssuing is TryLock for package fencing. Its last parameter's type is
// internal to this module.
func (l *Locker) TryLockIssuing(ctx context.Context, key Key, issue grant.Issue) (*Lock, error) {
	return l.acquire(ctx, "try lock", key, newWaiter(ctx, key, issue, true))
}

// LockIssuing is Lock for package fencing. Its last parameter's type is
// internal to this module.
func (l *Locker) LockIssuing(ctx context.Context, key Key, issue grant.Issue) (*Lock, error) {
	return l.acquire(ctx, "lock", key, newWaiter(ctx, key, issue, false))
}

func (l *Locker) acquire(ctx context.Context, verb string, key Key, w *waiter) (*Lock, error) {
	lock, err := l.await(ctx, key, w)
	if err != nil {
		return nil, wrap(verb, key, err)
	}
	return lock, nil
}

func (l *Locker) await(ctx context.Context, key Key, w *waiter) (*Lock, error) {
	if err := key.validate(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, ended(ctx)
	}
	ln, err := l.join(key.tag(), w)
	if err != nil {
		return nil, err
	}
	select {
	case r := <-w.result:
		return r.lock, r.err
	case <-ctx.Done():
	}
	if err := l.leave(ln, w); err != nil {
		return nil, err
	}
	// Served in the same instant: the result is there, or about to be.
	r := <-w.result
	return r.lock, r.err
}

// Close ends the Locker: calls that wait return ErrClosed, locks that are held
// are unlocked, which closes their Done, and later calls return ErrClosed. It
// does not wait for the code that holds a lock, only for what the Locker itself
// has under way, which its own timeouts bound; ctx bounds that wait, and
// Close returns its error if it ends first. A pool made by Open is closed too.
//
// Unlock returns an error that matches ErrClosed for a lock that Close has
// unlocked, and so does Do. Close returns the errors of its unlocks. It may be
// called more than once.
func (l *Locker) Close(ctx context.Context) error {
	held := l.shut()

	done := make(chan error, 1)
	// Ends when all goroutines of the Locker have, each within its bounds.
	go func() {
		errs := make([]error, len(held))
		var unlocks sync.WaitGroup
		for i, lock := range held {
			unlocks.Go(func() { errs[i] = lock.close(ctx) })
		}
		unlocks.Wait()
		l.work.Wait()
		if l.owned {
			l.pool.Close()
		}
		done <- errors.Join(errs...)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("advisory: close: %w", ended(ctx))
	}
}

// ended is ctx's error, with its cause where that says more.
func ended(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, ctx.Err()) {
		return fmt.Errorf("%w: %w", ctx.Err(), cause)
	}
	return ctx.Err()
}
