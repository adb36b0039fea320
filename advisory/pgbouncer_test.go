package advisory_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// behindPgBouncer is setupConfig with a PgBouncer between the Lockers and the
// server. The observer does without.
func behindPgBouncer(t *testing.T, mode string, config *advisory.Config, configure ...func(*pgxpool.Config)) *bundle {
	t.Helper()
	db := pgtest.New(t)
	pooled := *db
	pooled.DSN = db.PgBouncer(t, mode, "default_pool_size = 20")
	b := &bundle{db: db, via: &pooled, raw: db.Pool(t), isOnPooler: true}
	b.pool, b.locker = b.another(t, config, configure...)
	return b
}

func simpleProtocol(c *pgx.ConnConfig) { c.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol }

// locking are the methods that lock.
var locking = []struct {
	name string
	call func(context.Context, *advisory.Locker) (*advisory.Lock, error)
}{
	{"TryLock", func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		return l.TryLock(ctx, advisory.ID(7))
	}},
	{"Lock", func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		return l.Lock(ctx, advisory.ID(7))
	}},
	{"TryRLock", func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		return l.TryRLock(ctx, advisory.ID(7))
	}},
	{"RLock", func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		return l.RLock(ctx, advisory.ID(7))
	}},
	{"TryLockAll", func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		return l.TryLockAll(ctx, ids(7, 8)...)
	}},
	{"LockAll", func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		return l.LockAll(ctx, ids(7, 8)...)
	}},
}

// lockingToo are those with an object of their own.
var lockingToo = []struct {
	name string
	call func(context.Context, *advisory.Locker) (*advisory.Lock, error)
}{
	{"TryAcquire", func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		return l.Semaphore("case 45", 2).TryAcquire(ctx)
	}},
	{"Acquire", func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		return l.Semaphore("case 45", 2).Acquire(ctx)
	}},
	{"Session", func(ctx context.Context, l *advisory.Locker) (*advisory.Lock, error) {
		s, err := l.Session(ctx)
		if err != nil {
			return nil, err
		}
		return s.TryLock(ctx, advisory.ID(7))
	}},
}

// refuses requires that no method locks, the first time and later, and that each
// leaves nothing behind.
func (b *bundle) refuses(t *testing.T, want error, advice string) {
	t.Helper()
	for range 2 {
		for _, m := range slices.Concat(locking, lockingToo) {
			lock, err := m.call(t.Context(), b.locker)
			require.ErrorIs(t, err, want, m.name)
			require.ErrorContains(t, err, advice, m.name)
			require.Nil(t, lock, m.name)
			require.Zero(t, b.granted(t), m.name)
			require.Zero(t, b.pool.Stat().TotalConns(), "%s: the connection is destroyed", m.name)
		}
	}
	b.leakCheck(t)
}

// Cases 45, 47 and 51: the pooler is found out before anything is locked.
func TestLocker_refusesAPoolerThatLendsBackendsForATransaction(t *testing.T) {
	t.Parallel()
	b := behindPgBouncer(t, "transaction", nil)
	b.refuses(t, advisory.ErrPooler, "connect to the server itself")

	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	for range 4 { // that have queries
		conn := b.via.Conn(t, simpleProtocol)
		clients.Go(func() {
			for ctx.Err() == nil {
				if _, err := conn.Exec(context.Background(), "SELECT pg_sleep(0.0001)"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 5 {
		b.refuses(t, advisory.ErrPooler, "connect to the server itself")
	}
	cancel()
	clients.Wait()
}

func TestLocker_refusesAPoolerThatLendsBackendsForAStatement(t *testing.T) {
	t.Parallel()
	b := behindPgBouncer(t, "statement", nil)
	b.refuses(t, advisory.ErrPooler, "connect to the server itself")
}

// Even a pooler in session mode: nothing tells from outside which mode it is.
func TestLocker_refusesAPoolerUnlessItIsSaidToKeepSessions(t *testing.T) {
	t.Parallel()
	b := behindPgBouncer(t, "session", nil)
	b.refuses(t, advisory.ErrPooler, "set Config.SessionPooler if the pooler is in session mode")
}

// occupier is a client that keeps the backend of the Locker's first statement,
// before the second one is sent, for a transaction of its own.
type occupier struct {
	t      *testing.T
	client *pgx.Conn
	pid    int // of the backend that it keeps
}

// between makes the connections of a pool those that it comes between.
func (o *occupier) between(c *pgxpool.Config) {
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		return &interrupted{conn, o}, err
	}
}

type interrupted struct {
	net.Conn
	by *occupier
}

func (i *interrupted) Write(b []byte) (int, error) {
	isSecond := bytes.Contains(b, []byte("pg_backend_pid()")) && !bytes.Contains(b, []byte(meets))
	if isSecond && i.by.pid == 0 {
		i.by.occupy()
	}
	return i.Conn.Write(b)
}

// occupy begins a transaction. PgBouncer lends the backend that was used last.
func (o *occupier) occupy() {
	if err := errors.Join(
		func() error { _, err := o.client.Exec(context.Background(), "BEGIN"); return err }(),
		o.client.QueryRow(context.Background(), "SELECT pg_backend_pid()").Scan(&o.pid),
	); err != nil {
		o.t.Error(err)
	}
}

func TestLocker_findsOutAPoolerThatDoesNotKeepItsPromise(t *testing.T) {
	t.Parallel()
	for _, m := range slices.Concat(locking, lockingToo) {
		o := &occupier{t: t}
		b := behindPgBouncer(t, "transaction", &advisory.Config{SessionPooler: true}, o.between)
		o.client = b.via.Conn(t, simpleProtocol)
		_, err := m.call(t.Context(), b.locker)
		require.ErrorIs(t, err, advisory.ErrPooler, m.name)
		require.ErrorContains(t, err, "the pooler must be in session mode", m.name)
		require.NotZero(t, o.pid, m.name)
		require.Zero(t, b.pool.Stat().TotalConns(), m.name)
		exec(t, o.client, "ROLLBACK")
		b.leakCheck(t)
	}
}

// Behind a pooler that keeps sessions all is as it is without one.
func TestLocker_behindAPoolerThatKeepsSessions(t *testing.T) {
	t.Parallel()
	config := &advisory.Config{SessionPooler: true}
	for name, test := range behaviours {
		t.Run(name+"/direct", func(t *testing.T) {
			t.Parallel()
			test(trial{t, setupConfig(t, config)})
		})
		t.Run(name+"/PgBouncer", func(t *testing.T) {
			t.Parallel()
			test(trial{t, behindPgBouncer(t, "session", config)})
		})
	}
}

// What PgBouncer refuses for good, whichever code it has for that.
func TestLead_returnsAtOnceWhatAPoolerRefuses(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b := &bundle{db: db, via: db.BehindPgBouncer(t), raw: db.Pool(t), isOnPooler: true}
	for name, wrong := range map[string]func(*pgxpool.Config){
		"database": func(c *pgxpool.Config) { c.ConnConfig.Database = "pgtest_none" },
		"user":     func(c *pgxpool.Config) { c.ConnConfig.User = "pgtest_none" },
		"password": func(c *pgxpool.Config) { c.ConnConfig.Password = "pgtest_none" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, locker := b.another(t, &advisory.Config{SessionPooler: true}, wrong)
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			err := locker.Lead(ctx, advisory.ID(7), func(context.Context, *advisory.Lock) error { return nil })
			require.Error(t, err)
			require.NoError(t, ctx.Err(), "%v", err)
		})
	}
}
