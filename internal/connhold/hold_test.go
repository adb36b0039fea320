package connhold_test

import (
	"context"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/stopwatch"
)

// bundle is a pool that connects by way of a proxy, and an observer that does
// not.
type bundle struct {
	pool     *pgxpool.Pool
	proxy    *faultproxy.Proxy
	observer *pgx.Conn
}

func setup(t *testing.T, configure ...func(*pgxpool.Config)) *bundle {
	t.Helper()
	db := pgtest.New(t)
	b := &bundle{observer: db.Conn(t)}
	c := b.observer.Config()
	b.proxy = faultproxy.Start(t, net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))))
	b.pool = db.Pool(t, func(c *pgxpool.Config) {
		c.MaxConns = 2
		c.ConnConfig.Host, c.ConnConfig.Port = b.proxy.Addr().IP.String(), uint16(b.proxy.Addr().Port)
		c.ConnConfig.Fallbacks = nil
		for _, f := range configure {
			f(c)
		}
	})
	return b
}

func (b *bundle) pin(t *testing.T) *connhold.Hold {
	t.Helper()
	hold, err := connhold.Pin(t.Context(), b.pool, new(connhold.Timers))
	require.NoError(t, err)
	return hold
}

func run(t *testing.T, hold *connhold.Hold, sql string) error {
	t.Helper()
	return hold.Run(t.Context(), limit, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

// isAlive asks the server whether it still has the session.
func (b *bundle) isAlive(t *testing.T, pid uint32) bool {
	t.Helper()
	var alive bool
	require.NoError(t, b.observer.QueryRow(t.Context(),
		"SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)", int(pid)).Scan(&alive))
	return alive
}

// lastQuery asks the server which statement of the session it ran last.
func (b *bundle) lastQuery(t *testing.T, pid uint32) (query string) {
	t.Helper()
	require.NoError(t, b.observer.QueryRow(t.Context(), "SELECT query FROM pg_stat_activity WHERE pid = $1", int(pid)).Scan(&query))
	return query
}

// waits asks the server whether the session waits for an advisory lock.
func (b *bundle) waits(t *testing.T, pid uint32) (waits bool) {
	t.Helper()
	require.NoError(t, b.observer.QueryRow(t.Context(),
		"SELECT EXISTS (SELECT FROM pg_locks WHERE pid = $1 AND locktype = 'advisory' AND NOT granted)", int(pid)).Scan(&waits))
	return waits
}

// block locks 7 until the function is called that it returns.
func (b *bundle) block(t *testing.T) (unblock func()) {
	t.Helper()
	_, err := b.observer.Exec(t.Context(), "SELECT pg_advisory_lock(7)")
	require.NoError(t, err)
	return func() {
		_, err := b.observer.Exec(t.Context(), "SELECT pg_advisory_unlock(7)")
		require.NoError(t, err)
	}
}

func (b *bundle) ended(t *testing.T, pid uint32) {
	t.Helper()
	b.eventually(t, "the session has ended", func() bool { return !b.isAlive(t, pid) })
}

func (b *bundle) eventually(t *testing.T, what string, isSo func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !isSo() {
		require.True(t, time.Now().Before(deadline), "not seen: "+what)
		<-time.After(3 * time.Millisecond) // or the asking keeps a busy machine from it
	}
}

func TestPin_takesTheConnectionOutOfUse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hold := b.pin(t)
	require.EqualValues(t, 1, b.pool.Stat().AcquiredConns())
	require.True(t, b.isAlive(t, hold.PID()))
	require.NotEmpty(t, hold.ParameterStatus("server_version"))
	require.Empty(t, hold.ParameterStatus("no such setting"))
	hold.Data()["example.com/a"] = 1
	require.NoError(t, run(t, hold, "SELECT 1"))
	hold.Release()
	hold.Release()
	require.Zero(t, b.pool.Stat().AcquiredConns())
	require.EqualValues(t, 1, b.pool.Stat().IdleConns())
	again := b.pin(t)
	defer again.Release()
	require.Equal(t, 1, again.Data()["example.com/a"], "the same connection")
}

func TestPin_waitIsBoundedByCtx(t *testing.T) {
	t.Parallel()
	b := setup(t)
	defer b.pin(t).Release()
	defer b.pin(t).Release()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := connhold.Pin(ctx, b.pool, new(connhold.Timers))
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestRelease_returnsOnlyWhatIsClean(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, dirty := range map[string]func(*connhold.Hold){
		"a statement failed": func(h *connhold.Hold) { require.Error(t, run(t, h, "SELECT 1/0")) },
		"it failed and one succeeded after": func(h *connhold.Hold) {
			require.Error(t, run(t, h, "SELECT 1/0"))
			require.NoError(t, run(t, h, "SELECT 1"))
		},
		"a transaction is open":     func(h *connhold.Hold) { require.NoError(t, run(t, h, "BEGIN")) },
		"it is watched":             func(h *connhold.Hold) { h.Watch(slow, func(*connhold.Loss) {}) },
		"a statement took too long": func(h *connhold.Hold) { require.Error(t, runFor(h, 10*time.Millisecond, "SELECT pg_sleep(10)")) },
	} {
		hold := b.pin(t)
		pid := hold.PID()
		dirty(hold)
		hold.Release()
		require.Zero(t, b.pool.Stat().TotalConns(), name)
		b.ended(t, pid)
	}
}

var slow = connhold.Limits{Heartbeat: time.Hour, Timeout: time.Second}

func runFor(hold *connhold.Hold, limit time.Duration, sql string) error {
	return hold.Run(context.Background(), limit, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql)
		return err
	})
}

func TestRun_takesCtxForItsValuesOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	hold := b.pin(t)
	defer hold.Release()
	type key struct{}
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
	cancel()
	err := hold.Run(ctx, limit, func(ctx context.Context, conn *pgx.Conn) error {
		require.Equal(t, "value", ctx.Value(key{}))
		return conn.Ping(ctx)
	})
	require.NoError(t, err)
}

func TestDestroy_endsTheSessionAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, silent := range []bool{false, true} {
		hold := b.pin(t)
		pid := hold.PID()
		require.NoError(t, run(t, hold, "SELECT pg_advisory_lock(7)"))
		if silent {
			b.proxy.Swallow()
		}
		w := stopwatch.Start()
		hold.Destroy()
		hold.Destroy()
		require.Less(t, w.Stop(), 5*time.Second)
		require.Zero(t, b.pool.Stat().TotalConns(), "the pool counts it out, link or no link")
		if silent {
			_, err := b.observer.Exec(t.Context(), "SELECT pg_terminate_backend($1)", int(pid))
			require.NoError(t, err)
		}
		b.ended(t, pid)
	}
}
