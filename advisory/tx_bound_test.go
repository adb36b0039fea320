package advisory_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// stuckTx is a transaction whose function returns when it is told to.
type stuckTx struct {
	result chan error
	goOn   chan struct{}
}

// stuck starts one on the session of a lock, and returns when its function runs.
func stuck(t *testing.T, lock *advisory.Lock) *stuckTx {
	t.Helper()
	s := &stuckTx{make(chan error, 1), make(chan struct{})}
	begun := make(chan struct{})
	go func() {
		s.result <- lock.Tx(context.Background(), pgx.TxOptions{}, func(pgx.Tx) error {
			close(begun)
			<-s.goOn
			return nil
		})
	}()
	<-begun
	return s
}

// end has the function return, and returns what Tx does.
func (s *stuckTx) end() error {
	close(s.goOn)
	return <-s.result
}

// What has ended a session under a transaction leaves nothing for other calls to wait
// for: neither its place nor its connection.
func TestLockTx_thatDoesNotEndHoldsUpNobody(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		ends    func(*testing.T, *bundle, *advisory.Locker) *stuckTx // and gives up
		limited func(*advisory.Config)
	}{
		"Unlock gives up": {
			func(t *testing.T, _ *bundle, l *advisory.Locker) *stuckTx {
				t.Helper()
				lock, err := l.TryLock(t.Context(), advisory.ID(7))
				require.NoError(t, err)
				s := stuck(t, lock)
				require.ErrorContains(t, lock.Unlock(t.Context()), "was still running")
				return s
			},
			func(c *advisory.Config) { c.UnlockTimeout = 200 * time.Millisecond },
		},
		"TxTimeout is over": {
			func(t *testing.T, _ *bundle, l *advisory.Locker) *stuckTx {
				t.Helper()
				lock, err := l.TryLock(t.Context(), advisory.ID(7))
				require.NoError(t, err)
				s := stuck(t, lock)
				<-lock.Done()
				require.ErrorIs(t, lock.Err(), advisory.ErrLost)
				require.ErrorContains(t, lock.Err(), "TxTimeout")
				require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost)
				return s
			},
			func(c *advisory.Config) { c.TxTimeout = 200 * time.Millisecond },
		},
		"a Session's Unlock gives up": {
			func(t *testing.T, _ *bundle, l *advisory.Locker) *stuckTx {
				t.Helper()
				session, err := l.Session(t.Context())
				require.NoError(t, err)
				locks := lockThree(t, session)
				s := stuck(t, locks[0])
				require.ErrorContains(t, locks[1].Unlock(t.Context()), "was still running")
				for _, lock := range []*advisory.Lock{locks[0], locks[2]} {
					<-lock.Done()
					require.ErrorIs(t, lock.Err(), advisory.ErrLost)
					require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost)
				}
				_, err = session.TryLock(t.Context(), advisory.ID(1))
				require.ErrorIs(t, err, advisory.ErrLost)
				require.NoError(t, session.Close(t.Context()))
				return s
			},
			func(c *advisory.Config) { c.UnlockTimeout, c.HeartbeatTimeout = 200*time.Millisecond, time.Second },
		},
		"a Session's Close gives up": {
			func(t *testing.T, _ *bundle, l *advisory.Locker) *stuckTx {
				t.Helper()
				session, err := l.Session(t.Context())
				require.NoError(t, err)
				locks := lockThree(t, session)
				s := stuck(t, locks[0])
				require.ErrorContains(t, session.Close(t.Context()), "was still running")
				for _, lock := range locks {
					<-lock.Done()
					require.ErrorIs(t, lock.Err(), advisory.ErrClosed)
					require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrClosed)
				}
				_, err = session.TryLock(t.Context(), advisory.ID(1))
				require.ErrorIs(t, err, advisory.ErrClosed)
				require.NoError(t, session.Close(t.Context()))
				return s
			},
			func(c *advisory.Config) { c.UnlockTimeout, c.HeartbeatTimeout = 200*time.Millisecond, time.Second },
		},
		"TxTimeout is over in a Session": {
			func(t *testing.T, _ *bundle, l *advisory.Locker) *stuckTx {
				t.Helper()
				session, err := l.Session(t.Context())
				require.NoError(t, err)
				locks := lockThree(t, session)
				s := stuck(t, locks[0])
				for _, lock := range locks {
					<-lock.Done()
					require.ErrorContains(t, lock.Err(), "TxTimeout")
					require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost)
				}
				require.NoError(t, session.Close(t.Context()))
				return s
			},
			func(c *advisory.Config) { c.TxTimeout = 200 * time.Millisecond },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			config := new(advisory.Config)
			c.limited(config)
			pool, locker := b.another(t, config, maxConns(3)) // two may be pinned
			s := c.ends(t, b, locker)
			b.noLockLeft(t)

			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			again, err := locker.Lock(ctx, advisory.ID(7))
			require.NoError(t, err, "the place is free though the function has not returned")
			require.EqualValues(t, 2, pool.Stat().AcquiredConns(), "and its connection is counted until it does")
			_, err = locker.Lock(ctx, advisory.ID(8))
			require.ErrorIs(t, err, advisory.ErrPoolExhausted)
			_, err = locker.Session(ctx)
			require.ErrorIs(t, err, advisory.ErrPoolExhausted)
			_, err = locker.LockAll(ctx, ids(8, 9)...)
			require.ErrorIs(t, err, advisory.ErrPoolExhausted)
			require.NoError(t, ctx.Err())

			require.Error(t, s.end())
			b.eventually(t, "the pool is rid of it", func() bool { return pool.Stat().TotalConns() == 1 })
			require.NoError(t, again.Unlock(t.Context()))
			b.eventually(t, "nothing is left", func() bool { return advisory.Leftovers(locker) == "" })
		})
	}
}

// lockThree takes 7 and two more locks.
func lockThree(t *testing.T, s *advisory.Session) (locks []*advisory.Lock) {
	t.Helper()
	for _, id := range []int64{7, 17, 27} {
		lock, err := s.TryLock(t.Context(), advisory.ID(id))
		require.NoError(t, err)
		locks = append(locks, lock)
	}
	return locks
}

// A transaction on a server that has gone silent, wherever it is then, ends long before
// TxTimeout, but for fn's own statements.
func TestLockTx_isBoundedWhenTheServerIsSilent(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before bool // the BEGIN
		fn     func(ctx context.Context, silence func(), tx pgx.Tx) error
		config advisory.Config
	}{
		"begin": {before: true, fn: func(context.Context, func(), pgx.Tx) error { panic("called") }},
		"commit": {fn: func(_ context.Context, silence func(), _ pgx.Tx) error {
			silence()
			return nil
		}},
		"rollback": {fn: func(_ context.Context, silence func(), _ pgx.Tx) error {
			silence()
			return context.Canceled
		}},
		"rollback by fn": {fn: func(ctx context.Context, silence func(), tx pgx.Tx) error {
			silence()
			return tx.Rollback(ctx)
		}},
		"rows that are left open": {fn: func(ctx context.Context, silence func(), tx pgx.Tx) error {
			_, err := tx.Query(ctx, "SELECT generate_series(1, 100000000)") //nolint:sqlclosecheck // which is what it is about
			silence()
			return err
		}},
		"a statement of fn's": {
			config: advisory.Config{TxTimeout: time.Second},
			fn: func(ctx context.Context, silence func(), tx pgx.Tx) error {
				silence()
				_, err := tx.Exec(ctx, "SELECT 1")
				return err
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			proxy := b.proxy(t)
			config := c.config
			config.Heartbeat, config.HeartbeatTimeout = time.Second, 2*time.Second
			pool, locker := b.another(t, &config, through(proxy))
			lock, err := locker.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err)
			pid := lock.BackendPID()
			start := time.Now()
			if c.before {
				proxy.Swallow()
			}
			require.Error(t, lock.Tx(context.Background(), pgx.TxOptions{}, func(tx pgx.Tx) error {
				return c.fn(context.Background(), proxy.Swallow, tx)
			}))
			<-lock.Done()
			require.Less(t, time.Since(start), 30*time.Second, "TxTimeout is 1 h")
			var lost *advisory.LostError
			require.ErrorAs(t, lock.Err(), &lost)
			require.Equal(t, advisory.LostUnresponsive, lost.Reason)
			require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost)
			b.eventually(t, "the pool is rid of it", func() bool { return pool.Stat().TotalConns() == 0 })
			proxy.Cut()
			scan[bool](t, b, "SELECT pg_terminate_backend($1)", int(pid)) // if it does not know yet
			b.noLockLeft(t)
		})
	}
}

func TestLockTx_isNotBoundedByLessThanTxTimeout(t *testing.T) {
	t.Parallel()
	b := setupConfig(t, &advisory.Config{Heartbeat: 10 * time.Millisecond, HeartbeatTimeout: 900 * time.Millisecond, VanishTimeout: time.Second})
	exec(t, b.session(t), "CREATE TABLE t (x int)")
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.NoError(t, lock.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), "SELECT pg_sleep(3)"); err != nil {
			return err
		}
		return insert(tx)
	}))
	require.NoError(t, lock.Unlock(t.Context()))
	require.Equal(t, 1, b.rows(t))
}

// Nor does it hold up the next transaction, or the close of the Locker's own pool.
func TestLockTx_thatDoesNotEndHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	locker, err := advisory.Open(t.Context(), b.db.DSN, &advisory.Config{TxTimeout: 500 * time.Millisecond})
	require.NoError(t, err)
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	s := stuck(t, lock)
	t.Cleanup(func() { _ = s.end() })
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	err = lock.Tx(ctx, pgx.TxOptions{}, func(pgx.Tx) error { return nil })
	require.ErrorIs(t, err, advisory.ErrLost)
	require.NoError(t, locker.Close(ctx))
}
