package advisory_test

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// allowing is a config that allows a pooler, and is patient with it.
func allowing() *advisory.Config { return patient(&advisory.Config{SessionPooler: true}) }

// onPgBouncer is behindPgBouncer with settings of the test's own.
func onPgBouncer(t *testing.T, mode string, config *advisory.Config, settings ...string) *bundle {
	t.Helper()
	db := pgtest.New(t)
	pooled := *db
	pooled.DSN = db.PgBouncer(t, mode, settings...)
	b := &bundle{db: db, via: &pooled, raw: db.Pool(t), isOnPooler: true}
	b.pool, b.locker = b.another(t, config)
	return b
}

// It says that it keeps sessions, and no other client makes that visible.
func TestLocker_findsOutThatAPoolerLendsBackends(t *testing.T) {
	t.Parallel()
	for name, settings := range map[string][]string{
		"transaction":              {"transaction"},
		"transaction, one backend": {"transaction", "default_pool_size = 1"},
		"statement":                {"statement"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := onPgBouncer(t, settings[0], allowing(), settings[1:]...)
			b.refuses(t, advisory.ErrPooler, "the pooler must be in session mode")
		})
	}
}

// The backend that was used last is not the next one then.
func TestLocker_findsOutThatAPoolerLendsBackendsInTurn(t *testing.T) {
	t.Parallel()
	for backends := 1; backends <= 4; backends++ {
		b := onPgBouncer(t, "transaction", allowing(), "server_round_robin = 1")
		var clients []*pgx.Conn
		for range backends { // each in a transaction, so that the pooler needs as many backends
			conn := b.via.Conn(t, simpleProtocol)
			exec(t, conn, "BEGIN")
			exec(t, conn, "SELECT 1")
			clients = append(clients, conn)
		}
		for _, conn := range clients {
			exec(t, conn, "COMMIT")
		}
		b.refuses(t, advisory.ErrPooler, "the pooler must be in session mode")
	}
}

func TestLead_returnsAtOnceFromAPoolerThatLendsBackends(t *testing.T) {
	t.Parallel()
	b := onPgBouncer(t, "transaction", allowing())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := b.locker.Lead(ctx, advisory.ID(7), func(context.Context, *advisory.Lock) error { return nil })
	require.ErrorIs(t, err, advisory.ErrPooler)
	require.NoError(t, ctx.Err())
}

// What is refused without SessionPooler is told whether it could be allowed.
func TestLocker_saysWhetherAPoolerCouldBeAllowed(t *testing.T) {
	t.Parallel()
	for mode, advice := range map[string]string{
		"session":     "or set Config.SessionPooler if the pooler is in session mode (in 10 rounds one connection kept its backend",
		"transaction": "two open connections had the same backend",
		"statement":   "not allowed in statement pooling mode",
	} {
		b := onPgBouncer(t, mode, patient(nil), "server_round_robin = 0")
		if mode == "statement" {
			exec(t, b.via.Conn(t, simpleProtocol), "SELECT 1")
		}
		_, err := b.locker.TryLock(t.Context(), advisory.ID(7))
		require.ErrorIs(t, err, advisory.ErrPooler)
		require.ErrorContains(t, err, advice, mode)
		require.ErrorContains(t, err, "connect to the server itself", mode)
	}
}

// A pooler without a backend for a second connection is neither refused nor
// waited for without end.
func TestLocker_allowsAPoolerThatHasOneBackendOnly(t *testing.T) {
	t.Parallel()
	var log lines
	config := allowing()
	config.HeartbeatTimeout = time.Second
	config.Logger = slog.New(slog.NewTextHandler(&log, nil))
	b := onPgBouncer(t, "session", config, "default_pool_size = 1")
	for range 2 {
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
		require.NoError(t, lock.Unlock(t.Context()))
	}
	require.Equal(t, 1, strings.Count(log.String(), "pooler not checked"), log.String())
	b.leakCheck(t)
}

// lines is a log that can be read meanwhile.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// The second connection is one for all that are new at the time, and none later.
func TestLocker_probesAPoolerOnceForManyConnections(t *testing.T) {
	t.Parallel()
	b := onPgBouncer(t, "session", allowing(), "default_pool_size = 20")
	var dials atomic.Int32
	pool, locker := b.another(t, allowing(), maxConns(9), func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return dial(ctx, network, address)
		}
	})
	for range 3 {
		var calls sync.WaitGroup
		locks := make([]*advisory.Lock, 8)
		for i := range locks {
			calls.Go(func() {
				var err error
				if locks[i], err = locker.TryLock(t.Context(), advisory.ID(int64(i))); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Wait()
		for _, lock := range locks {
			require.NoError(t, lock.Unlock(t.Context()))
		}
	}
	require.EqualValues(t, pool.Stat().NewConnsCount()+1, dials.Load())
}
