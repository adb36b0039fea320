package advisory_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
)

// What fn does that is no statement in progress costs the transaction at most, and
// never the lock.
func TestLockTx_keepsTheLock(t *testing.T) {
	t.Parallel()
	mine := errors.New("mine")
	background := context.Background()
	// Each inserts a row first. cancel ends the context of Tx.
	for name, c := range map[string]struct {
		fn      func(ctx context.Context, cancel func(), tx pgx.Tx) error
		want    error
		commits bool
		panics  bool
	}{
		"ctx ends before the commit": {want: context.Canceled, fn: func(_ context.Context, cancel func(), _ pgx.Tx) error {
			cancel()
			return nil
		}},
		"ctx ends before the rollback": {want: mine, fn: func(_ context.Context, cancel func(), _ pgx.Tx) error {
			cancel()
			return mine
		}},
		"ctx ends before a panic": {panics: true, fn: func(_ context.Context, cancel func(), _ pgx.Tx) error {
			cancel()
			panic(mine)
		}},
		"ctx ends before a statement": {want: context.Canceled, fn: func(ctx context.Context, cancel func(), tx pgx.Tx) error {
			cancel()
			_, err := tx.Exec(ctx, "SELECT 1")
			return err
		}},
		"fn commits with a ctx that has ended": {want: context.Canceled, fn: func(ctx context.Context, cancel func(), tx pgx.Tx) error {
			cancel()
			return tx.Commit(ctx)
		}},
		"fn rolls back with a ctx that has ended": {want: mine, fn: func(ctx context.Context, cancel func(), tx pgx.Tx) error {
			cancel()
			return errors.Join(tx.Rollback(ctx), mine)
		}},
		"fn ends it by itself": {want: pgx.ErrTxClosed, commits: true, fn: func(ctx context.Context, _ func(), tx pgx.Tx) error {
			return tx.Commit(ctx)
		}},
		"rows are left open": {commits: true, fn: func(ctx context.Context, _ func(), tx pgx.Tx) error {
			_, err := tx.Query(ctx, "SELECT generate_series(1, 10000)") //nolint:sqlclosecheck // which is what it is about
			return err
		}},
		"rows are left open and fn fails": {want: mine, fn: func(ctx context.Context, _ func(), tx pgx.Tx) error {
			rows, err := tx.Query(ctx, "SELECT generate_series(1, 10000)")
			return errors.Join(err, mine, map[bool]error{false: errors.New("no row")}[rows.Next()])
		}},
		"rows are left open and fn panics": {panics: true, fn: func(ctx context.Context, _ func(), tx pgx.Tx) error {
			_, err := tx.Query(ctx, "SELECT generate_series(1, 10000)") //nolint:sqlclosecheck // which is what it is about
			panic(err)
		}},
		"rows are left open and ctx ends": {want: context.Canceled, fn: func(_ context.Context, cancel func(), tx pgx.Tx) error {
			_, err := tx.Query(background, "SELECT generate_series(1, 10000)") //nolint:sqlclosecheck // which is what it is about
			cancel()
			return err
		}},
		"rows are left open when fn rolls back": {want: mine, fn: func(ctx context.Context, _ func(), tx pgx.Tx) error {
			_, err := tx.Query(ctx, "SELECT generate_series(1, 10000)") //nolint:sqlclosecheck // which is what it is about
			return errors.Join(err, tx.Rollback(ctx), mine)
		}},
		"another query is refused meanwhile": {commits: true, fn: func(ctx context.Context, _ func(), tx pgx.Tx) error {
			if _, err := tx.Query(ctx, "SELECT generate_series(1, 10000)"); err != nil { //nolint:sqlclosecheck // which is what it is about
				return err
			}
			if _, err := tx.Query(ctx, "SELECT 1"); err == nil { //nolint:sqlclosecheck // which is what it is about
				return errors.New("two at a time")
			}
			return nil
		}},
		"a row is not scanned": {commits: true, fn: func(ctx context.Context, _ func(), tx pgx.Tx) error {
			tx.QueryRow(ctx, "SELECT generate_series(1, 10000)")
			return nil
		}},
		"a batch is left open": {commits: true, fn: func(ctx context.Context, _ func(), tx pgx.Tx) error {
			b := new(pgx.Batch)
			b.Queue("SELECT generate_series(1, 1000)")
			b.Queue("SELECT 1")
			tx.SendBatch(ctx, b)
			return nil
		}},
		"rows in a savepoint are left open": {commits: true, fn: func(ctx context.Context, _ func(), tx pgx.Tx) error {
			inner, err := tx.Begin(ctx)
			if err == nil {
				inner, err = inner.Begin(ctx)
			}
			if err == nil {
				_, err = inner.Query(ctx, "SELECT generate_series(1, 10000)") //nolint:sqlclosecheck // which is what it is about
			}
			return err
		}},
		"a statement fails": {want: pgx.ErrTxCommitRollback, fn: func(ctx context.Context, _ func(), tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "SELECT 1/0")
			return map[bool]error{true: errors.New("it did not fail")}[err == nil]
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			exec(t, b.session(t), "CREATE TABLE t (x int)")
			lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			transact := func() {
				err = lock.Tx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
					if err := insert(tx); err != nil {
						return err
					}
					return c.fn(ctx, cancel, tx)
				})
			}
			if c.panics {
				require.Panics(t, transact)
			} else {
				transact()
				require.ErrorIs(t, err, c.want)
			}
			require.NoError(t, lock.Err())
			require.Equal(t, map[bool]int{true: 1}[c.commits], b.rows(t))
			require.NoError(t, lock.Tx(t.Context(), pgx.TxOptions{}, insert))
			require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
			require.NoError(t, lock.Unlock(t.Context()))
			require.EqualValues(t, 1, b.pool.Stat().TotalConns(), "the connection is as good as new")
			b.leakCheck(t)
		})
	}
}

func TestLockTx_whenCtxHasEndedBefore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	reason := errors.New("reason")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	err = lock.Tx(ctx, pgx.TxOptions{}, func(pgx.Tx) error { panic("called") })
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, reason)
	require.NoError(t, lock.Unlock(t.Context()))
	b.leakCheck(t)
}

// Tx returns when ctx ends, though a heartbeat or the BEGIN is not answered. The answer
// that comes late finds the lock held.
func TestLockTx_returnsWhenCtxEndsThoughTheServerIsSlow(t *testing.T) {
	t.Parallel()
	const delay = 6 * time.Second
	for name, heartbeat := range map[string]time.Duration{"heartbeat": 50 * time.Millisecond, "begin": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			exec(t, b.session(t), "CREATE TABLE t (x int)")
			proxy := b.proxy(t)
			_, locker := b.another(t, &advisory.Config{Heartbeat: heartbeat, HeartbeatTimeout: time.Minute, VanishTimeout: 2 * time.Hour}, through(proxy))
			lock, err := locker.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err)
			last := func() string {
				return scan[string](t, b, "SELECT query || query_start FROM pg_stat_activity WHERE pid = $1", int(lock.BackendPID()))
			}
			before := last()
			proxy.Delay(faultproxy.ToClient, delay)
			if heartbeat < time.Minute {
				b.eventually(t, "a heartbeat", func() bool { return last() != before })
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			start := time.Now()
			err = lock.Tx(ctx, pgx.TxOptions{}, func(pgx.Tx) error { panic("called") })
			require.Less(t, time.Since(start), delay/2)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			proxy.Delay(faultproxy.ToClient, 0)
			require.NoError(t, lock.Tx(t.Context(), pgx.TxOptions{}, insert))
			require.Equal(t, 1, b.rows(t))
			require.NoError(t, lock.Unlock(t.Context()))
			b.noLockLeft(t)
		})
	}
}

// refuser is a tracer that panics at a statement.
type refuser struct{ sql string }

func (r refuser) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.EqualFold(data.SQL, r.sql) {
		panic(errBoom)
	}
	return ctx
}

func (refuser) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// The next transaction would commit what the last one has written.
func TestLockTx_thatCannotRollBackEndsTheSession(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *pgxpool.Config) { c.ConnConfig.Tracer = refuser{"rollback"} })
	exec(t, b.session(t), "CREATE TABLE t (x int)")
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	mine := errors.New("mine")
	require.ErrorIs(t, lock.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
		return errors.Join(insert(tx), mine)
	}), mine)
	err = lock.Tx(t.Context(), pgx.TxOptions{}, func(pgx.Tx) error { return nil })
	require.Zero(t, b.rows(t), "rolled back")
	require.ErrorIs(t, err, advisory.ErrLost)
	require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost)
	b.leakCheck(t)
}
