package advisory_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// questions counts those of a pool for a sign of life, and the connections that are made:
// pgx makes one to cancel a question that has taken too long.
type questions struct{ asked, dialled atomic.Int64 }

// silentPool returns a Locker on a pool of connections that all went silent while they
// idled. New ones are in order.
func (b *bundle) silentPool(t *testing.T, size int, config advisory.Config) (*advisory.Locker, *questions) {
	t.Helper()
	proxy := b.proxy(t)
	q := new(questions)
	config.Reserve = advisory.NoReserve
	pool, locker := b.another(t, &config, through(proxy), maxConns(int32(size)), func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			q.dialled.Add(1)
			return dial(ctx, network, address)
		}
		c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool {
			q.asked.Add(1)
			return true
		}
	})
	idle := make([]*pgxpool.Conn, size)
	for i := range idle {
		var err error
		idle[i], err = pool.Acquire(t.Context())
		require.NoError(t, err)
	}
	for _, conn := range idle {
		conn.Release()
	}
	b.eventually(t, "they idle", func() bool { return int(pool.Stat().IdleConns()) == size })
	proxy.Swallow()
	q.asked.Store(0)
	q.dialled.Store(0)
	t.Cleanup(proxy.Cut) // pgx says goodbye for 15 s, and the pool counts the connections until then
	return locker, q
}

// The pool says goodbye to a silent connection for 15 s. There is room for another long
// before that is over.
func TestLock_whenAllIdleConnectionsAreSilent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := context.Background()
	for name, call := range map[string]func(*advisory.Locker) (end func(context.Context) error, err error){
		"TryLock": func(l *advisory.Locker) (func(context.Context) error, error) {
			lock, err := l.TryLock(ctx, advisory.ID(1))
			return lock.Unlock, err
		},
		"Lock": func(l *advisory.Locker) (func(context.Context) error, error) {
			lock, err := l.Lock(ctx, advisory.ID(2))
			return lock.Unlock, err
		},
		"LockAll": func(l *advisory.Locker) (func(context.Context) error, error) {
			lock, err := l.LockAll(ctx, ids(3, 4)...)
			return lock.Unlock, err
		},
		"Session": func(l *advisory.Locker) (func(context.Context) error, error) {
			session, err := l.Session(ctx)
			return session.Close, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locker, _ := b.silentPool(t, 6, advisory.Config{HeartbeatTimeout: time.Second})
			start := time.Now()
			end, err := call(locker)
			took := time.Since(start)
			require.NoError(t, err)
			require.NoError(t, end(ctx))
			require.Less(t, took, 14*time.Second, "less than a goodbye")
		})
	}
}

// A call that is given up leaves no question of the pool's for longer than the Locker waits
// for answers.
func TestLock_givenUpWhileAConnectionIsSilent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, call := range map[string]func(context.Context, *advisory.Locker) error{
		"Lock":    func(ctx context.Context, l *advisory.Locker) error { _, err := l.Lock(ctx, advisory.ID(2)); return err },
		"Session": func(ctx context.Context, l *advisory.Locker) error { _, err := l.Session(ctx); return err },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locker, q := b.silentPool(t, 1, advisory.Config{HeartbeatTimeout: 2 * time.Second})
			ctx, cancel := context.WithCancel(t.Context())
			left := make(chan error, 1)
			go func() { left <- call(ctx, locker) }()
			b.eventually(t, "the pool asks", func() bool { return q.asked.Load() == 1 })
			cancel()
			require.ErrorIs(t, <-left, context.Canceled)
			b.eventually(t, "the question is cancelled", func() bool { return q.dialled.Load() == 1 })
		})
	}
}
