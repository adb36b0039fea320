package advisory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/lockerr"
	"github.com/pgadvisory/pgadvisory/internal/lockid"
	"github.com/pgadvisory/pgadvisory/internal/lockproto"
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
	server Server

	proto lockproto.Config

	work     sync.WaitGroup // acquirers
	timers   connhold.Timers
	pooler   poolerFinding
	panicked func(error) // logPanic

	// mu guards the fields below, and those of every queue. Nothing blocks
	// under it: no statement, no wait for a connection, no callback.
	mu        sync.Mutex
	closed    bool
	pinned    int // connections pinned or being waited for
	releasing int // of these, on their way back
	forsaken  int // of these, closed under a transaction whose function has not returned
	queues    map[lockid.ID]*queue
	callCount int64 // numbers the queues of single calls

	sessions map[*Session]struct{}
	closing  chan struct{} // closed by Close
	// changed is closed when a connection may have become free for a lock, or is
	// not going to. It is nil when nobody waits for that.
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
	if ctx == nil {
		return nil, fmt.Errorf("advisory: open: %w", errNilContext)
	}
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
	locker.owned, locker.proto.Owned = true, true
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
	l := &Locker{
		pool: pool, config: c, size: size, limit: size - c.Reserve,
		queues: make(map[lockid.ID]*queue), sessions: make(map[*Session]struct{}), closing: make(chan struct{}),
	}
	l.panicked = l.logPanic
	l.proto = lockproto.Config{AnswerTimeout: c.HeartbeatTimeout, VanishTimeout: c.VanishTimeout, CheckPooler: l.checkPooler}
	server := pool.Config().ConnConfig
	l.server = Server{Host: server.Host, Port: server.Port, Database: server.Database}
	return l, nil
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
	ctx = orBackground(ctx)
	held, sessions := l.shut()

	done := make(chan error, 1)
	// Ends when all goroutines of the Locker have, each within its bounds.
	go func() {
		errs := make([]error, len(held)+len(sessions))
		var unlocks sync.WaitGroup
		for i, lock := range held {
			unlocks.Go(func() { errs[i] = connhold.Protect(func() error { return lock.close(ctx) }) })
		}
		for i, session := range sessions {
			unlocks.Go(func() { errs[len(held)+i] = connhold.Protect(func() error { return session.Close(ctx) }) })
		}
		unlocks.Wait()
		l.work.Wait()
		if l.owned {
			l.closePool()
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

// closePool closes the pool, which waits for the connections that are pinned. Of those
// that were closed under a transaction nobody knows when its function returns.
func (l *Locker) closePool() {
	closed := make(chan struct{})
	// Ends when those functions have returned.
	go func() {
		l.pool.Close()
		close(closed)
	}()
	l.mu.Lock()
	waits := l.forsaken == 0
	l.mu.Unlock()
	if waits {
		<-closed
	}
}

// shut refuses everybody, now and later, and returns what is held: locks with a
// connection of their own, and Sessions.
func (l *Locker) shut() ([]*Lock, []*Session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		close(l.closing)
	}
	l.closed = true
	held := make(map[*Lock]struct{})
	for _, q := range l.queues {
		q.refuseAllLocked(ErrClosed)
		if q.cancelConnect != nil {
			q.cancelConnect()
		}
		for _, h := range q.holders {
			if h.lock != nil && h.lock.in == nil {
				held[h.lock] = struct{}{}
			}
		}
	}
	return slices.Collect(maps.Keys(held)), slices.Collect(maps.Keys(l.sessions))
}

// forsake counts a connection out when the transaction that has it locked has ended,
// whose function can take any time.
func (l *Locker) forsake(c *heldConn, dispose func()) {
	l.mu.Lock()
	l.forsaken++
	l.mu.Unlock()
	// Ends when the transaction's function returns; nobody can wait for that.
	go func() {
		_ = c.lock(context.Background())
		dispose()
		c.unlock()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.forsaken--
	}()
}

// ended is ctx's error, with its cause where that says more.
func ended(ctx context.Context) error { return lockerr.Ended(ctx) }
