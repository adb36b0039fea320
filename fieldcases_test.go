//go:build unix

package pgadvisory_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"syscall"
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
	"github.com/pgadvisory/pgadvisory/migrations"
)

// The numbers of the cases are those of docs/field-cases.md.

// worker is a process that holds a lock and does what it is told to.
func worker(ctx context.Context, in *bufio.Scanner, out io.Writer) error {
	pool, err := pgxpool.New(ctx, os.Getenv(dsnVar))
	if err != nil {
		return err
	}
	locker, err := advisory.New(pool, &advisory.Config{
		Heartbeat: 500 * time.Millisecond, HeartbeatTimeout: 2 * time.Second, VanishTimeout: 3 * time.Second,
	})
	if err != nil {
		return err
	}
	lock, err := locker.TryLock(ctx, advisory.Name(resource))
	if err != nil {
		return err
	}
	fmt.Fprintln(out, os.Getpid(), lock.BackendPID())
	for in.Scan() {
		switch in.Text() {
		case "exit on SIGTERM":
			signals := make(chan os.Signal, 1)
			signal.Notify(signals, syscall.SIGTERM)
			go func() { // ends with the process
				<-signals
				os.Exit(1)
			}()
			fmt.Fprintln(out, "ready")
		case "start a process":
			command := exec.Command("sleep", "60")
			if err := command.Start(); err != nil {
				return err
			}
			fmt.Fprintln(out, command.Process.Pid)
		case "take two more and work for long":
			for id := range int64(2) {
				if _, err := locker.TryLock(ctx, advisory.ID(id)); err != nil {
					return err
				}
			}
			fmt.Fprintln(out, "ready")
			return lock.Tx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SELECT pg_sleep(600)")
				return err
			})
		}
	}
	return in.Err()
}

// startWorker returns a worker with its process and the backend of its lock.
func startWorker(t *testing.T, db *pgtest.Database) (w *childproc.Child, process int, backend uint32) {
	t.Helper()
	w = childproc.Start(t, "worker", dsnVar+"="+db.DSN)
	_, err := fmt.Sscan(w.Line(), &process, &backend)
	require.NoError(t, err)
	return w, process, backend
}

// patience bounds each wait of a test for a state.
const patience = time.Minute

// free returns how long it takes until nobody holds an advisory lock, without the
// time in which this process could not run.
func free(t *testing.T, pool *pgxpool.Pool) time.Duration {
	t.Helper()
	w := stopwatch.Start()
	defer w.Stop()
	tick := time.NewTicker(3 * time.Millisecond)
	defer tick.Stop()
	for start := time.Now(); time.Since(start) < patience; {
		all, err := advisory.Inspect(t.Context(), pool)
		require.NoError(t, err)
		if len(all) == 0 {
			return w.Net()
		}
		<-tick.C
	}
	require.FailNow(t, "still held", "after %s", patience)
	return 0
}

// Cases 42 and 44: the process is killed while a statement of its runs, which
// the server would else carry out to its end.
func TestKilledHolder_inTheMiddleOfAStatement(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	if db.Server.Version() < 140000 || runtime.GOOS != "linux" {
		t.Skip("the server has no client_connection_check_interval")
	}
	pool, locker := newLocker(t, db, 4)
	w, _, backend := startWorker(t, db)
	require.Equal(t, "ready", w.Ask("take two more and work for long"))

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := locker.Lock(ctx, advisory.Name(resource))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, resource)
	holders, err := advisory.Inspect(t.Context(), pool, advisory.Name(resource))
	require.NoError(t, err)
	require.NotEmpty(t, holders)
	require.Equal(t, backend, holders[0].PID)
	require.Equal(t, "active", holders[0].State)
	require.Contains(t, holders[0].Application, "lock "+resource)
	require.Positive(t, holders[0].QueryAge())

	w.Kill()
	require.Less(t, free(t, pool), 5*time.Second, "VanishTimeout is 3 s")
}

// Case 111: what a holder starts does not inherit its connections.
func TestKilledHolder_whoseOwnProcessLivesOn(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	w, _, _ := startWorker(t, db)
	survivor, err := strconv.Atoi(w.Ask("start a process"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Kill(survivor, syscall.SIGKILL) })
	pool := db.Pool(t)
	w.Kill()
	require.Less(t, free(t, pool), time.Second)
	require.NoError(t, syscall.Kill(survivor, 0), "it lives")
}

// Case 114: a process that ends by itself without a word to the server.
func TestTerminatedHolder_freesTheLockAtOnce(t *testing.T) {
	t.Parallel()
	for name, handles := range map[string]bool{"killed by SIGTERM": false, "os.Exit on SIGTERM": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			pool := db.Pool(t)
			w, process, _ := startWorker(t, db)
			if handles {
				require.Equal(t, "ready", w.Ask("exit on SIGTERM"))
			}
			require.NoError(t, pool.Ping(t.Context()))
			require.NoError(t, syscall.Kill(process, syscall.SIGTERM))
			require.Less(t, free(t, pool), time.Second)
		})
	}
}

// Case 97: as many tokens are drawn as locks are granted, and no two are equal.
func TestToken_isDrawnOnceForEachLock(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	const fencers, rounds = 4, 50
	tokens := make(chan fencing.Token, fencers*rounds)
	var work sync.WaitGroup
	for i := range fencers {
		_, locker := newLocker(t, db, 4)
		fencer, err := fencing.New(locker, nil)
		require.NoError(t, err)
		for _, name := range []string{resource, fmt.Sprint(i)} {
			work.Go(func() {
				for range rounds / 2 {
					err := fencer.Do(context.Background(), name, func(_ context.Context, lease *fencing.Lease) error {
						tokens <- lease.Token()
						return nil
					})
					if err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	work.Wait()
	close(tokens)
	distinct := map[fencing.Token]bool{}
	for token := range tokens {
		distinct[token] = true
	}
	require.Len(t, distinct, fencers*rounds)
	var drawn int
	require.NoError(t, db.Conn(t).QueryRow(t.Context(), "SELECT last_value FROM fencing.token").Scan(&drawn))
	require.Equal(t, fencers*rounds, drawn)
}

// Case 17: a second run in the process, and a third one elsewhere, find the lock
// of the migrations free.
func TestMigrations_leaveTheirLockFree(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	observer := db.Pool(t)
	first, second := db.Pool(t), db.Pool(t)
	require.NoError(t, migrations.Down(t.Context(), first))
	for _, pool := range []*pgxpool.Pool{first, first, second} {
		require.NoError(t, migrations.Up(t.Context(), pool))
		all, err := advisory.Inspect(t.Context(), observer)
		require.NoError(t, err)
		require.Empty(t, all, "free when Up returns")
	}
}

// Case 19: something releases the lock of the migrations in their session.
func TestMigrations_failIfTheirLockWasNotHeldToTheEnd(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	pool := db.Pool(t)
	require.NoError(t, migrations.Down(t.Context(), pool))
	_, err := db.Conn(t).Exec(t.Context(), `CREATE FUNCTION release() RETURNS event_trigger LANGUAGE plpgsql AS
		$$ BEGIN PERFORM pg_advisory_unlock_all(); END $$;
		CREATE EVENT TRIGGER release ON ddl_command_end WHEN TAG IN ('CREATE SEQUENCE') EXECUTE FUNCTION release()`)
	require.NoError(t, err)
	require.ErrorIs(t, migrations.Up(t.Context(), pool), advisory.ErrNotOwner)
}
