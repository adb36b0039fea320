package advisory_test

import (
	"context"
	"math"
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
		{Reserve: -2},
		{Heartbeat: -1},
		{HeartbeatTimeout: -time.Second},
		{UnlockTimeout: -1},
		{VanishTimeout: 10 * time.Second}, // the sum of the defaults
		{Heartbeat: 25 * time.Second},     // with the defaults of the others
		{Heartbeat: time.Second, HeartbeatTimeout: time.Second, VanishTimeout: 2 * time.Second}, // equal
		{Heartbeat: math.MaxInt64},
		{HeartbeatTimeout: math.MaxInt64}, // the sum overflows
		{Heartbeat: math.MaxInt64, HeartbeatTimeout: math.MaxInt64, VanishTimeout: time.Second}, // and is negative
	} {
		_, err := advisory.New(db.Pool(t), &c)
		require.ErrorContains(t, err, "Config.")
	}
	_, err = advisory.New(one, &advisory.Config{
		Reserve: advisory.NoReserve, Heartbeat: time.Second, HeartbeatTimeout: time.Second, VanishTimeout: 2*time.Second + 1,
	})
	require.NoError(t, err)
}

func TestOpen_usesAPoolOfItsOwn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const connections = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND " + inUse
	before := scan[int](t, b, connections)
	locker, err := advisory.Open(t.Context(), b.via.DSN, b.usual(nil))
	require.NoError(t, err)
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.NoError(t, locker.Close(t.Context()))
	require.ErrorIs(t, lock.Err(), advisory.ErrClosed)
	b.eventually(t, "its connections are closed", func() bool {
		return scan[int](t, b, connections) == before
	})
	require.Zero(t, b.granted(t))
}

func TestOpen_reportsWhatIsWrong(t *testing.T) {
	t.Parallel()
	db := usualWay(t, pgtest.New(t))
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
	require.ErrorIs(t, lock.Err(), advisory.ErrClosed)
	require.Equal(t, 1, b.granted(t), "only the other session's")
	require.Zero(t, b.pool.Stat().AcquiredConns())
	require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrClosed, "it was not held until now")
	_, err = b.locker.TryLock(t.Context(), advisory.ID(9))
	require.ErrorIs(t, err, advisory.ErrClosed)
	_, err = b.locker.Lock(t.Context(), advisory.ID(9))
	require.ErrorIs(t, err, advisory.ErrClosed)
	require.NoError(t, b.locker.Close(t.Context()), "again")
	require.NoError(t, b.pool.Ping(t.Context()), "the application's pool stays open")
}

func TestClose_isToldByDo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, other := b.another(t, nil)
	err := b.locker.Do(t.Context(), advisory.ID(7), func(ctx context.Context, _ *advisory.Lock) error {
		require.NoError(t, b.locker.Close(t.Context()))
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), advisory.ErrClosed)
		lock, err := other.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err, "another holds it while fn runs")
		return lock.Unlock(t.Context())
	})
	require.ErrorIs(t, err, advisory.ErrClosed)
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
