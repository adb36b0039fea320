//go:build unix

package redislease_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/redislease"
)

// kind is a kind of Fencer, with a database and, for one, a Redis.
type kind struct {
	*testing.T
	pool *pgxpool.Pool
	// another is a Fencer as a process of its own would have it.
	another func() *fencing.Fencer
	// lose takes the lock from its holder, who is not told.
	lose func(*fencing.Lease)
	// isHeld looks at the server.
	isHeld func(resource string) bool
}

var kinds = map[string]func(*testing.T) *kind{
	"a Locker's": func(t *testing.T) *kind {
		t.Helper()
		k := newKind(t)
		k.another = func() *fencing.Fencer {
			locker, err := advisory.New(k.pool, &advisory.Config{Reserve: 4})
			require.NoError(t, err)
			t.Cleanup(func() { _ = locker.Close(context.Background()) }) // of a lock that a test has lost
			f, err := fencing.New(locker, nil)
			require.NoError(t, err)
			return f
		}
		k.lose = func(lease *fencing.Lease) {
			_, err := k.pool.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, lease.BackendPID())
			require.NoError(t, err)
			eventually(t, "the backend is gone", func() bool {
				return !query[bool](k, `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = $1)`, lease.BackendPID())
			})
		}
		k.isHeld = func(resource string) bool {
			return query[bool](k, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
				AND (classid::bigint << 32 | objid::bigint) = hashtextextended($1, 0))`, resource)
		}
		return k
	},
	"over redislease": func(t *testing.T) *kind {
		t.Helper()
		k, b := newKind(t), setup(t)
		var leasers []*redislease.Leaser
		k.another = func() *fencing.Fencer {
			l := b.leaser(t, &redislease.Config{TTL: time.Minute})
			leasers = append(leasers, l)
			f, err := fencing.NewOver(l, k.pool, nil)
			require.NoError(t, err)
			return f
		}
		k.lose = func(lease *fencing.Lease) {
			require.NoError(t, b.observer.Del(t.Context(), b.key(lease.Resource())).Err())
			for _, l := range leasers {
				redislease.Beat(l)
			}
		}
		k.isHeld = func(resource string) bool { return b.held(t, resource) != "" }
		return k
	},
}

func newKind(t *testing.T) *kind {
	t.Helper()
	db := pgtest.New(t)
	pool := db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 12 })
	_, err := pool.Exec(t.Context(), `CREATE TABLE exports (id int PRIMARY KEY)`)
	require.NoError(t, err)
	require.NoError(t, fencing.Guard(t.Context(), pool, "exports", "r"))
	return &kind{T: t, pool: pool}
}

func query[T any](k *kind, sql string, args ...any) T {
	k.Helper()
	var value T
	require.NoError(k, k.pool.QueryRow(k.Context(), sql, args...).Scan(&value))
	return value
}

func (k *kind) lock(f *fencing.Fencer) *fencing.Lease {
	k.Helper()
	ctx, cancel := context.WithTimeout(k.Context(), limit)
	defer cancel()
	lease, err := f.Lock(ctx, "r")
	require.NoError(k, err)
	return lease
}

func (k *kind) write(lease *fencing.Lease, id int) error {
	return lease.InTx(k.Context(), k.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(k.Context(), fmt.Sprintf("INSERT INTO exports VALUES (%d)", id))
		return err
	})
}

// behaviours are the contract of a Fencer, whatever keeps its locks.
var behaviours = map[string]func(*kind){
	"one holds, until it unlocks": func(k *kind) {
		a, b := k.another(), k.another()
		lease := k.lock(a)
		require.True(k, k.isHeld("r"))
		require.Equal(k, "r", lease.Resource())
		require.NoError(k, lease.Err())
		for _, f := range []*fencing.Fencer{a, b} {
			_, err := f.TryLock(k.Context(), "r")
			require.ErrorIs(k, err, advisory.ErrNotAcquired)
			require.ErrorIs(k, f.TryDo(k.Context(), "r", nil), advisory.ErrNotAcquired)
		}
		require.NoError(k, k.write(lease, 1))
		require.NoError(k, lease.Unlock(k.Context()))
		require.NoError(k, lease.Unlock(k.Context()))
		require.ErrorIs(k, lease.Err(), advisory.ErrUnlocked)
		receive(k.T, lease.Done())
		require.False(k, k.isHeld("r"))
		next := k.lock(b)
		require.Greater(k, next.Token(), lease.Token())
		require.ErrorIs(k, k.write(lease, 2), fencing.ErrStale)
		require.NoError(k, next.Unlock(k.Context()))
	},
	"of many callers one wins": func(k *kind) {
		fencers := []*fencing.Fencer{k.another(), k.another()}
		var last fencing.Token
		for range 10 {
			var wins atomic.Int64
			var won atomic.Pointer[fencing.Lease]
			var work sync.WaitGroup
			for i := range 8 {
				// Ends with its call; the test waits.
				work.Go(func() {
					lease, err := fencers[i%2].TryLock(k.Context(), "r")
					if err == nil {
						wins.Add(1)
						won.Store(lease)
					} else if !errors.Is(err, advisory.ErrNotAcquired) && !errors.Is(err, advisory.ErrPoolExhausted) {
						k.Error(err)
					}
				})
			}
			work.Wait()
			require.Equal(k, int64(1), wins.Load())
			require.Greater(k, won.Load().Token(), last)
			last = won.Load().Token()
			require.NoError(k, won.Load().Unlock(k.Context()))
		}
	},
	"who has lost the lock is refused, and told": func(k *kind) {
		a, b := k.another(), k.another()
		old := k.lock(a)
		ctx, cancel := old.Context(k.Context())
		defer cancel()
		k.lose(old)
		current := k.lock(b)
		require.ErrorIs(k, k.write(old, 1), fencing.ErrStale)
		require.NoError(k, k.write(current, 2))
		receive(k.T, old.Done())
		receive(k.T, ctx.Done())
		require.ErrorIs(k, context.Cause(ctx), advisory.ErrLost)
		require.ErrorIs(k, old.Err(), advisory.ErrLost)
		require.ErrorIs(k, old.Unlock(k.Context()), advisory.ErrLost)
		require.NoError(k, k.write(current, 3), "that took nothing from the other")
		require.NoError(k, current.Unlock(k.Context()))
	},
	"a wait ends with its context, and leaves nothing": func(k *kind) {
		a, b := k.another(), k.another()
		lease := k.lock(a)
		ctx, cancel := context.WithTimeout(k.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := b.Lock(ctx, "r")
		require.ErrorIs(k, err, context.DeadlineExceeded)
		require.NotErrorIs(k, err, advisory.ErrNotAcquired)
		_, err = b.TryLock(ctx, "another")
		require.ErrorIs(k, err, context.DeadlineExceeded)
		require.NoError(k, lease.Err(), "its own context has ended by now")
		require.NoError(k, lease.Unlock(ctx), "Unlock works with one that has ended")
		eventually(k.T, "nothing is held", func() bool { return !k.isHeld("r") && !k.isHeld("another") })
	},
	"Do gives back however fn ends": func(k *kind) {
		f := k.another()
		require.Equal(k, errWork, f.Do(k.Context(), "r", func(context.Context, *fencing.Lease) error { return errWork }))
		require.False(k, k.isHeld("r"))
		require.Panics(k, func() {
			_ = f.Do(k.Context(), "r", func(context.Context, *fencing.Lease) error { panic("work panicked") })
		})
		require.False(k, k.isHeld("r"))
		err := f.TryDo(k.Context(), "r", func(ctx context.Context, lease *fencing.Lease) error {
			k.lose(lease)
			receive(k.T, ctx.Done())
			return errWork
		})
		require.ErrorIs(k, err, errWork)
		require.ErrorIs(k, err, advisory.ErrLost)
	},
	"Lead leads again after a loss": func(k *kind) {
		f := k.another()
		var terms []*fencing.Lease
		require.NoError(k, f.Lead(k.Context(), "r", func(ctx context.Context, lease *fencing.Lease) error {
			if terms = append(terms, lease); len(terms) == 2 {
				return k.write(lease, 1)
			}
			k.lose(lease)
			receive(k.T, ctx.Done())
			return errWork
		}))
		require.Greater(k, terms[1].Token(), terms[0].Token())
		require.ErrorIs(k, k.write(terms[0], 2), fencing.ErrStale)
		ctx, cancel := context.WithCancel(k.Context())
		require.ErrorIs(k, f.Lead(ctx, "r", func(ctx context.Context, _ *fencing.Lease) error {
			cancel()
			<-ctx.Done()
			return nil
		}), context.Canceled)
		require.False(k, k.isHeld("r"))
	},
	"the writers of an earlier holder are waited for": func(k *kind) {
		a, b := k.another(), k.another()
		old := k.lock(a)
		tx, err := k.pool.Begin(k.Context())
		require.NoError(k, err)
		k.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		require.NoError(k, old.Stamp(k.Context(), tx))
		_, err = tx.Exec(k.Context(), "INSERT INTO exports VALUES (1)")
		require.NoError(k, err)
		k.lose(old)
		_, err = b.TryLock(k.Context(), "r")
		require.ErrorIs(k, err, advisory.ErrNotAcquired)
		require.ErrorContains(k, err, fmt.Sprint(tx.Conn().PgConn().PID()))
		require.False(k, k.isHeld("r"), "nothing is kept")
		done := make(chan error, 1)
		// Ends with the lock; the test waits.
		go func() {
			lease, err := b.Lock(k.Context(), "r")
			if err == nil {
				err = k.write(lease, 2)
			}
			done <- err
		}()
		eventually(k.T, "it waits", func() bool {
			return query[bool](k, `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
				AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`)
		})
		require.NoError(k, tx.Commit(k.Context()))
		require.NoError(k, receive(k.T, done))
		require.Equal(k, 2, query[int](k, "SELECT count(*) FROM exports"))
	},
	"names that are no text are refused": func(k *kind) {
		f := k.another()
		for _, name := range []string{"", "night\x00ly", "night\xffly"} {
			_, err := f.TryLock(k.Context(), name)
			require.ErrorIs(k, err, advisory.ErrInvalidKey)
			require.ErrorIs(k, f.Lead(k.Context(), name, nil), advisory.ErrInvalidKey)
		}
	},
}

func TestFencer_behavesAlikeWhateverKeepsItsLocks(t *testing.T) {
	t.Parallel()
	for name, kind := range kinds {
		for what, behaviour := range behaviours {
			t.Run(name+"/"+what, func(t *testing.T) {
				t.Parallel()
				behaviour(kind(t))
			})
		}
	}
}

// Redis has forgotten the lock and its counter, and two hold: the one that Redis has
// can write.
func TestFencer_overARedisThatForgets(t *testing.T) {
	t.Parallel()
	k, b := newKind(t), alone(t)
	over := func() *fencing.Fencer {
		f, err := fencing.NewOver(b.leaser(t, &redislease.Config{TTL: time.Hour}), k.pool, nil)
		require.NoError(t, err)
		return f
	}
	a, other := over(), over()
	old := k.lock(a)
	require.NoError(t, k.write(old, 1))
	require.NoError(t, b.server.Restart(t.Context()))
	current := k.lock(other)
	require.NoError(t, old.Err(), "it believes that it holds")
	require.ErrorIs(t, k.write(old, 2), fencing.ErrStale)
	require.NoError(t, k.write(current, 3))
	require.False(t, current.SafeUntil().IsZero())
	require.Error(t, old.Unlock(t.Context()))
	require.NoError(t, current.Unlock(t.Context()))
}
