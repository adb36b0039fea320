package advisory_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestLock_returnsAtOnceWhenCtxEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	holder := b.session(t)
	exec(t, holder, "SELECT pg_advisory_lock(7)")

	ctx, cancel := context.WithCancelCause(t.Context())
	got := make(chan error, 1)
	go func() {
		_, err := b.locker.Lock(ctx, advisory.ID(7))
		got <- err
	}()
	b.eventually(t, "it waits on the server", func() bool { return b.waiting(t) == 1 })
	reason := errors.New("shutting down")
	cancel(reason)
	err := <-got
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, reason)
	require.ErrorContains(t, err, "waiting for the lock")

	// Case 3: what waited for it on the server neither holds it nor waits.
	exec(t, holder, "SELECT pg_advisory_unlock(7)")
	b.leakCheck(t)
	_, err = b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
}

func TestLock_keepsTheConnectionOfACancelledWait(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	holder := b.session(t)
	exec(t, holder, "SELECT pg_advisory_lock(7)")
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() {
			_, err := b.locker.Lock(ctx, advisory.ID(7))
			got <- err
		}()
		b.eventually(t, "it waits on the server", func() bool { return b.waiting(t) == 1 })
		cancel()
		require.ErrorIs(t, <-got, context.Canceled)
		b.eventually(t, "the connection is back", func() bool { return b.pool.Stat().AcquiredConns() == 0 })
	}
	require.EqualValues(t, 1, b.pool.Stat().NewConnsCount())
}

func TestLock_endedCtxTouchesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := b.locker.Lock(ctx, advisory.ID(7))
	require.ErrorIs(t, err, context.Canceled)
	_, err = b.locker.TryLock(ctx, advisory.ID(7))
	require.ErrorIs(t, err, context.Canceled)
	require.Zero(t, b.pool.Stat().AcquireCount())
}

func TestLock_deadlineIsMet(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.session(t), "SELECT pg_advisory_lock(7)")
	start, elapsed := time.Now(), timed(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond) // case 101
	defer cancel()
	_, err := b.locker.Lock(ctx, advisory.ID(7))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
	require.Less(t, elapsed(), 2*time.Second)
}

// The rounds of cases 1 to 6: a wait is cancelled about when the lock is
// granted. Each ends held and without an error, or with ctx's error and nothing
// held.
func TestLock_cancelledAboutWhenGranted(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	holder := b.session(t)
	for range 300 {
		exec(t, holder, "SELECT pg_advisory_lock(7)")
		ctx, cancel := context.WithCancel(t.Context())
		got := make(chan error, 1)
		go func() {
			lock, err := b.locker.Lock(ctx, advisory.ID(7))
			if err == nil {
				err = lock.Unlock(ctx) // errors unless it was held until now
			} else if !errors.Is(err, context.Canceled) || lock != nil {
				t.Errorf("lock %v, error %v", lock, err)
			}
			got <- err
		}()
		time.AfterFunc(rand.N(2*time.Millisecond), cancel)
		exec(t, holder, "SELECT pg_sleep($1::float8 / 1000)", rand.Float64()*2)
		exec(t, holder, "SELECT pg_advisory_unlock(7)")
		if err := <-got; err != nil {
			require.ErrorIs(t, err, context.Canceled)
		}
	}
	b.leakCheck(t)
}

func TestLock_everyContextCancelledAtARandomMoment(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	const rounds, callers = 5000, 8
	key := advisory.Name("case 1")
	var holders, granted, cancelled counter
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			for range rounds / callers {
				ctx, cancel := context.WithCancel(context.Background())
				timer := time.AfterFunc(rand.N(3*time.Millisecond), cancel)
				lock, err := b.locker.Lock(ctx, key)
				if err == nil {
					if n := holders.add(1); n != 1 {
						t.Errorf("%d hold at once", n)
					}
					granted.add(1)
					holders.add(-1)
					if err := lock.Unlock(ctx); err != nil {
						t.Errorf("told that it holds what it does not: %v", err)
					}
				} else {
					cancelled.add(1)
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
				timer.Stop()
				cancel()
			}
		})
	}
	wg.Wait()
	t.Logf("%d granted, %d cancelled", granted.n, cancelled.n)
	require.Equal(t, rounds, granted.n+cancelled.n)
	require.Positive(t, granted.n)
	require.Positive(t, cancelled.n)
	b.leakCheck(t)
}

func TestTryLock_everyContextCancelledAtARandomMoment(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(3))
	for i := range 500 {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(600*time.Microsecond))
		lock, err := b.locker.TryLock(ctx, advisory.ID(int64(i)))
		if err == nil {
			require.NoError(t, lock.Unlock(ctx))
		} else {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		cancel()
	}
	b.leakCheck(t)
}

// A pool's owner may have pgx send cancel requests when a context ends. None
// may reach a statement of the session that comes later.
func TestLock_poolWhoseContextsSendCancelRequests(t *testing.T) {
	t.Parallel()
	b := setupWith(t, pgtest.ReadableLog, maxConns(2), func(c *pgxpool.Config) {
		c.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: time.Second}
		}
	})
	for range 200 {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(2*time.Millisecond))
		lock, err := b.locker.Lock(ctx, advisory.ID(7))
		if err == nil {
			<-ctx.Done()
			require.NoError(t, lock.Unlock(ctx))
		} else {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		cancel()
	}
	b.leakCheck(t)
	require.NotContains(t, b.db.Log(t), "canceling statement due to user request")
}

// Case 4: the wait's own error is not taken for "not held".
func TestLock_waiterWhoseStatementIsCancelledOrSessionEnds(t *testing.T) {
	t.Parallel()
	b := setup(t, maxConns(2))
	holder := b.session(t)
	for _, end := range []string{"pg_cancel_backend", "pg_terminate_backend"} {
		exec(t, holder, "SELECT pg_advisory_lock(7)")
		got := make(chan error, 1)
		go func() {
			_, err := b.locker.Lock(t.Context(), advisory.ID(7))
			got <- err
		}()
		b.eventually(t, "it is caught while it waits on the server, and not between two waits", func() bool {
			exec(t, holder, "SELECT "+end+"(pid) "+advisoryLocks+" AND NOT granted")
			return len(got) > 0
		})
		var pgErr *pgconn.PgError
		require.ErrorAs(t, <-got, &pgErr, end)
		require.True(t, strings.HasPrefix(pgErr.Code, "57"), pgErr.Code)
		exec(t, holder, "SELECT pg_advisory_unlock(7)")
		b.leakCheck(t)
	}
}

// counter is an int for several goroutines.
type counter struct {
	mu sync.Mutex
	n  int
}

func (c *counter) add(delta int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n += delta
	return c.n
}
