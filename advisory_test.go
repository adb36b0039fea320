//go:build unix

// Package pgadvisory_test tells the whole story end to end, with processes that
// are frozen and killed: lock, stamp, write, take over, refuse the stale write.
package pgadvisory_test

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
	"github.com/pgadvisory/pgadvisory/internal/childproc"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/internal/stopwatch"
)

func newLocker(t *testing.T, db *pgtest.Database, maxConns int32) (*pgxpool.Pool, *advisory.Locker) {
	t.Helper()
	pool := db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = maxConns })
	locker, err := advisory.New(pool, nil)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := locker.Close(ctx); err != nil {
			t.Errorf("close the locker: %v", err)
		}
	})
	return pool, locker
}

// holder is an exporter process that has been granted the resource.
type holder struct {
	*childproc.Child
	token, pid int
}

func startHolder(t *testing.T, db *pgtest.Database) *holder {
	t.Helper()
	h := &holder{Child: childproc.Start(t, "exporter", dsnVar+"="+db.DSN)}
	_, err := fmt.Sscan(h.Line(), &h.token, &h.pid)
	require.NoError(t, err)
	return h
}

func TestStory(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.Conn(t)
	_, err := admin.Exec(t.Context(), "CREATE TABLE exports (day date PRIMARY KEY, token bigint NOT NULL)")
	require.NoError(t, err)
	require.NoError(t, fencing.Guard(t.Context(), admin, "exports", resource))

	first := startHolder(t, db)
	require.Equal(t, 1, first.token)
	require.Equal(t, "exported", first.Ask("2018-01-31"))

	// It is frozen, and the server gives up the session, as it does with a
	// client that it can't reach.
	first.Stop()
	_, err = admin.Exec(t.Context(), "SELECT pg_terminate_backend($1)", first.pid)
	require.NoError(t, err)
	second := startHolder(t, db)
	require.Equal(t, 2, second.token)
	require.Equal(t, "exported", second.Ask("2018-02-01"))

	// Awake again it writes before it can have learned anything.
	first.Continue()
	require.Equal(t, "refused: token 1, current 2", first.Ask("2018-02-02"))
	require.Equal(t, "true", first.Ask("lost?"))

	// The second one dies in the middle: its lock is free at once.
	second.Kill()
	pool, locker := newLocker(t, db, 4)
	fencer, err := fencing.New(locker, nil)
	require.NoError(t, err)
	err = fencer.Do(t.Context(), resource, func(ctx context.Context, lease *fencing.Lease) error {
		require.EqualValues(t, 3, lease.Token())
		return export(ctx, pool, lease, "2018-02-02")
	})
	require.NoError(t, err)
	require.Equal(t, "refused: token 1, current 3", first.Ask("2018-02-03"))

	rows, err := admin.Query(t.Context(), "SELECT day::text || ' ' || token FROM exports ORDER BY day")
	require.NoError(t, err)
	exports, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"2018-01-31 1", "2018-02-01 2", "2018-02-02 3"}, exports)
}

func TestKilledHolder_freesTheLockAtOnce(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	_, locker := newLocker(t, db, 2)
	for range 5 {
		h := startHolder(t, db)
		_, err := locker.TryLock(t.Context(), advisory.Name(resource))
		require.ErrorIs(t, err, advisory.ErrNotAcquired)
		h.Kill()

		w := stopwatch.Start()
		lock, err := locker.Lock(t.Context(), advisory.Name(resource))
		took := w.Stop()
		require.NoError(t, err)
		require.Less(t, took, time.Second)
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

func TestTwentyPools_oneGetsTheLock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const n = 20
	var lockers [n]*advisory.Locker
	for i := range lockers {
		_, lockers[i] = newLocker(t, db, 2)
	}
	for round := range 5 {
		var won atomic.Int32
		var wg sync.WaitGroup
		start := make(chan struct{})
		for _, l := range lockers {
			wg.Go(func() {
				<-start
				switch _, err := l.TryLock(context.Background(), advisory.ID(int64(round))); {
				case err == nil:
					won.Add(1)
				case errors.Is(err, advisory.ErrPoolExhausted): // it holds that of an earlier round
				case !errors.Is(err, advisory.ErrNotAcquired):
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		require.EqualValues(t, 1, won.Load())
	}
	var held int
	require.NoError(t, db.Conn(t).QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted "+
		"AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&held))
	require.Equal(t, 5, held)
}

// A connection that is back in the pool while its lock is held can be released
// by anyone. Here nobody can reach it, however busy the pool is.
func TestPinnedConnection_isOutOfReach(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool, locker := newLocker(t, db, 4)
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)

	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			var pid uint32
			err := pool.QueryRow(context.Background(), "SELECT pg_backend_pid() FROM pg_advisory_unlock_all()").Scan(&pid)
			if err != nil || pid == lock.BackendPID() {
				t.Errorf("pid %d, pinned %d, error %v", pid, lock.BackendPID(), err)
			}
		})
	}
	wg.Wait()
	for _, c := range pool.AcquireAllIdle(t.Context()) {
		require.NotEqual(t, lock.BackendPID(), c.Conn().PgConn().PID())
		c.Release()
	}
	require.NoError(t, lock.Err())
	require.NoError(t, lock.Unlock(t.Context()), "it was held until now")
}

func TestUnlock_isRefusedToWhoeverDoesNotHold(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.Conn(t)
	_, firsts := newLocker(t, db, 2)
	_, seconds := newLocker(t, db, 2)
	holds := func(lock *advisory.Lock) bool {
		var held bool
		require.NoError(t, admin.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = $1)",
			int(lock.BackendPID())).Scan(&held))
		return held
	}

	first, err := firsts.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	_, err = admin.Exec(t.Context(), "SELECT pg_terminate_backend($1)", int(first.BackendPID()))
	require.NoError(t, err)
	second, err := seconds.Lock(t.Context(), advisory.ID(7))
	require.NoError(t, err)

	require.ErrorIs(t, first.Unlock(t.Context()), advisory.ErrLost)
	require.ErrorIs(t, new(advisory.Lock).Unlock(t.Context()), advisory.ErrNotOwner)
	var unlocked bool
	require.NoError(t, admin.QueryRow(t.Context(), "SELECT pg_advisory_unlock(7)").Scan(&unlocked))
	require.False(t, unlocked, "another session")
	require.True(t, holds(second))
	require.NoError(t, second.Unlock(t.Context()))
	require.False(t, holds(second))
	require.NoError(t, second.Unlock(t.Context()), "the first answer again, and no second unlock")
}
