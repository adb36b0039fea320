package advisory_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func TestLocker_neverTakesTheReserve(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(4))
	for i := range 3 {
		_, err := b.locker.TryLock(t.Context(), advisory.ID(int64(i)))
		require.NoError(t, err)
	}
	// Case 58: an answer with the numbers instead of a hang.
	_, err := b.locker.TryLock(t.Context(), advisory.ID(3))
	require.ErrorIs(t, err, advisory.ErrPoolExhausted)
	require.ErrorContains(t, err, "pinned 3 of the pool's 4")
	_, err = b.locker.Lock(t.Context(), advisory.ID(3))
	require.ErrorIs(t, err, advisory.ErrPoolExhausted)
	require.NoError(t, b.pool.Ping(t.Context()), "the work finds its connection")

	// Waiting for what this Locker holds needs none.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = b.locker.Lock(ctx, advisory.ID(0))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, advisory.ErrPoolExhausted)
}

func TestLock_saysWhenItWasAConnectionThatItWaitedFor(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	for range 2 { // the application has them all
		c, err := b.pool.Acquire(t.Context())
		require.NoError(t, err)
		defer c.Release()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := b.locker.Lock(ctx, advisory.ID(7)) // case 59
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, advisory.ErrPoolExhausted)
	require.ErrorContains(t, err, "waiting for a connection")
}

func TestLock_outlivesThePoolsLimits(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool, locker := b.another(t, nil, func(c *pgxpool.Config) { // case 53
		c.MaxConnLifetime, c.MaxConnIdleTime = time.Second, time.Second
		c.HealthCheckPeriod = 100 * time.Millisecond
	})
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	pool.Reset() // case 32
	exec(t, b.session(t), "SELECT pg_sleep(5)")
	require.NoError(t, lock.Err())
	require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
	require.NoError(t, lock.Unlock(t.Context()))
	require.Zero(t, b.granted(t), "case 54: free when Unlock returns, though the connection has expired")
	b.eventually(t, "the pool is rid of it", func() bool { return pool.Stat().TotalConns() == 0 })
}

func TestLock_whenThePoolIsClosed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool, locker := b.another(t, nil)
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	closed := make(chan struct{})
	go func() { // case 116: waits for the lock's connection
		pool.Close()
		close(closed)
	}()
	b.eventually(t, "the pool is closing, and says so", func() bool {
		other, err := locker.TryLock(t.Context(), advisory.ID(8))
		if err == nil {
			require.NoError(t, other.Unlock(t.Context()))
			return false
		}
		return strings.Contains(err.Error(), "closed pool")
	})
	require.NoError(t, lock.Err())
	require.NoError(t, lock.Unlock(t.Context()))
	<-closed
	require.Zero(t, b.granted(t))
}

func TestLock_whenTheServerIsNotThere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := b.proxy(t)
	_, locker := b.another(t, nil, through(proxy))
	proxy.RefuseNew(true)
	_, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.ErrorContains(t, err, "get a connection")
	_, err = locker.Lock(t.Context(), advisory.ID(7))
	require.ErrorContains(t, err, "get a connection")
	proxy.RefuseNew(false)
	_, err = locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
}

func TestTryLock_afterAllIdleConnectionsDied(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(4))
	var conns []*pgxpool.Conn
	for range 4 {
		c, err := b.pool.Acquire(t.Context())
		require.NoError(t, err)
		conns = append(conns, c)
	}
	for _, c := range conns {
		pid := pidOf(t, c)
		c.Release()
		b.terminate(t, pid)
	}
	b.eventually(t, "they have ended", func() bool {
		return scan[int](t, b, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()") == 0
	})
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
}

// Who has been told no, or has unlocked, finds the connection free at once.
func TestLocker_countsOutConnectionsBeforeItAnswers(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	exec(t, b.session(t), "SELECT pg_advisory_lock(7)")
	for range 300 {
		_, err := b.locker.TryLock(t.Context(), advisory.ID(7))
		require.ErrorIs(t, err, advisory.ErrNotAcquired)
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(8))
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

// A wait that was given up has its connection for up to a slice. Who needs it
// waits for that; who asks for the same lock joins it.
func TestLocker_connectionOfAWaitThatWasGivenUp(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	holder := b.session(t)
	for range 5 {
		exec(t, holder, "SELECT pg_advisory_lock(7)")
		giveUp := func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got := make(chan error, 1)
			go func() {
				_, err := b.locker.Lock(ctx, advisory.ID(7))
				got <- err
			}()
			b.eventually(t, "it waits on the server", func() bool { return b.waiting(t) == 1 })
			cancel()
			require.ErrorIs(t, <-got, context.Canceled)
		}
		giveUp()
		other, err := b.locker.TryLock(t.Context(), advisory.ID(8))
		require.NoError(t, err)
		require.NoError(t, other.Unlock(t.Context()))

		giveUp()
		exec(t, holder, "SELECT pg_advisory_unlock(7)")
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err, "nobody holds it")
		require.NoError(t, lock.Unlock(t.Context()))
	}
	b.leakCheck(t)
}

// Case 55: a connection that went silent while it idled.
func TestTryLock_replacesAConnectionThatWentSilent(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := b.proxy(t)
	_, locker := b.another(t, &advisory.Config{HeartbeatTimeout: 4 * time.Second}, through(proxy), maxConns(3),
		func(c *pgxpool.Config) {
			c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
		})
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	pid := lock.BackendPID()
	require.NoError(t, lock.Unlock(t.Context()))
	proxy.Swallow()
	lock, err = locker.TryLock(context.Background(), advisory.ID(7))
	require.NoError(t, err)
	require.NotEqual(t, pid, lock.BackendPID())
	require.NoError(t, lock.Unlock(t.Context()))
	proxy.Cut() // pgx goes on to say goodbye for 15 s, and the pool counts the connection until then
}

// noDeadlines is a connection as some tunnels make them.
type noDeadlines struct{ net.Conn }

var errNoDeadlines = errors.New("deadline not supported")

func (noDeadlines) SetDeadline(time.Time) error      { return errNoDeadlines }
func (noDeadlines) SetReadDeadline(time.Time) error  { return errNoDeadlines }
func (noDeadlines) SetWriteDeadline(time.Time) error { return errNoDeadlines }

func TestTryLock_refusesConnectionsWithoutDeadlines(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool, locker := b.another(t, nil, func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := dial(ctx, network, addr)
			return noDeadlines{conn}, err
		}
	})
	_, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.ErrorIs(t, err, errNoDeadlines)
	require.ErrorContains(t, err, "DialFunc")
	require.Zero(t, pool.Stat().TotalConns())
	b.noLockLeft(t)
}
