package advisory_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestNew_refusesWhatCannotWork(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, err := advisory.New(nil, nil)
	require.ErrorContains(t, err, "nil")
	one := db.Pool(t, maxConns(1))
	_, err = advisory.New(one, nil)
	require.ErrorContains(t, err, "pool_max_conns")
	_, err = advisory.New(one, &advisory.Config{Reserve: advisory.NoReserve})
	require.NoError(t, err)
	for _, c := range []advisory.Config{
		{Reserve: -2}, {Heartbeat: -1}, {HeartbeatTimeout: -time.Second}, {UnlockTimeout: -1},
	} {
		_, err := advisory.New(db.Pool(t), &c)
		require.ErrorContains(t, err, "Config.")
	}
}

func TestOpen_usesAPoolOfItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := scan[int](t, b, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
	locker, err := advisory.Open(t.Context(), b.db.DSN, nil)
	require.NoError(t, err)
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.NoError(t, locker.Close(t.Context()))
	require.ErrorIs(t, lock.Err(), advisory.ErrUnlocked)
	b.eventually(t, "its connections are closed", func() bool {
		return scan[int](t, b, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()") == before
	})
	require.Zero(t, b.granted(t))
}

func TestOpen_reportsWhatIsWrong(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, err := advisory.Open(t.Context(), "not a connection string", nil)
	require.Error(t, err)
	config, err := pgxpool.ParseConfig(db.DSN)
	require.NoError(t, err)
	secret := config.ConnConfig.Password
	_, err = advisory.Open(t.Context(), db.DSN+"&dbname=no_such_database", nil)
	require.ErrorContains(t, err, "no_such_database")
	if secret != "" {
		require.NotContains(t, err.Error(), secret)
	}
	_, err = advisory.Open(t.Context(), db.DSN, &advisory.Config{Heartbeat: -1})
	require.ErrorContains(t, err, "Heartbeat")
}

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
		c.MaxConnLifetime, c.MaxConnIdleTime = 100*time.Millisecond, 50*time.Millisecond
		c.HealthCheckPeriod = 20 * time.Millisecond
	})
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	pool.Reset() // case 32
	exec(t, b.session(t), "SELECT pg_sleep(0.6)")
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
	b.eventually(t, "the pool is closing", func() bool {
		_, err := locker.TryLock(t.Context(), advisory.ID(8))
		return err != nil
	})
	_, err = locker.TryLock(t.Context(), advisory.ID(8))
	require.ErrorContains(t, err, "closed pool")
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
		pid := c.Conn().PgConn().PID()
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

func TestClose_endsEverything(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec(t, b.session(t), "SELECT pg_advisory_lock(8)")
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	waits := make(chan error, 2)
	for _, id := range []int64{7, 8} { // one in memory, one on the server
		go func() {
			_, err := b.locker.Lock(context.Background(), advisory.ID(id))
			waits <- err
		}()
		b.eventually(t, "it waits", func() bool { return advisory.Waiting(b.locker, advisory.ID(id)) == 1 })
	}
	b.eventually(t, "on the server too", func() bool { return b.waiting(t) == 1 })

	require.NoError(t, b.locker.Close(t.Context()))
	require.ErrorIs(t, <-waits, advisory.ErrClosed)
	require.ErrorIs(t, <-waits, advisory.ErrClosed)
	require.True(t, isClosed(lock.Done()))
	require.ErrorIs(t, lock.Err(), advisory.ErrUnlocked)
	require.Equal(t, 1, b.granted(t), "only the other session's")
	require.Zero(t, b.pool.Stat().AcquiredConns())
	require.NoError(t, lock.Unlock(t.Context()))
	_, err = b.locker.TryLock(t.Context(), advisory.ID(9))
	require.ErrorIs(t, err, advisory.ErrClosed)
	_, err = b.locker.Lock(t.Context(), advisory.ID(9))
	require.ErrorIs(t, err, advisory.ErrClosed)
	require.NoError(t, b.locker.Close(t.Context()), "again")
	require.NoError(t, b.pool.Ping(t.Context()), "the application's pool stays open")
}

func TestClose_isBoundedByCtxAndGoesOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	proxy := b.proxy(t)
	pool, locker := b.another(t, &advisory.Config{UnlockTimeout: 500 * time.Millisecond}, through(proxy))
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	proxy.Swallow() // case 117
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, locker.Close(ctx), context.DeadlineExceeded)
	require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost, "the unlock that Close began")
	require.Zero(t, pool.Stat().AcquiredConns())
	b.terminate(t, lock.BackendPID())
}
