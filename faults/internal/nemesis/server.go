//go:build unix

package nemesis

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

const (
	terminateSQL = `SELECT pg_terminate_backend($1)`

	// One of the workers' sessions, by a number.
	anySQL = `SELECT coalesce((SELECT (array_agg(pid ORDER BY pid))[1 + $1::bigint % count(*)] FROM pg_stat_activity
		WHERE usename = 'postgres' AND backend_type = 'client backend' AND pid <> pg_backend_pid() HAVING count(*) > 0), 0)`

	cancelSQL = `SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
		WHERE backend_type = 'client backend' AND state = 'active' AND pid <> pg_backend_pid()`

	// Locks until there is no room for one more, and keeps what it has. Locks on
	// two numbers are in a space of their own.
	fillSQL = `DO $$
		BEGIN
			FOR i IN 1 .. 1000000 LOOP
				PERFORM pg_advisory_lock(1, i);
			END LOOP;
		EXCEPTION WHEN out_of_memory THEN NULL;
		END $$`
)

func (n *Nemesis) terminateBackend(ctx context.Context, pid uint32) error {
	return n.Arena.Exec(ctx, terminateSQL, pid)
}

func (n *Nemesis) terminate(ctx context.Context, a Action) error {
	m, hold := n.target(ctx, a)
	if hold.PID == 0 {
		return n.shoot(ctx, a)
	}
	since := history.Now()
	if err := n.terminateBackend(ctx, hold.PID); err != nil {
		return err
	}
	n.struck(a, since, history.Event{Worker: m.Number(), PID: hold.PID, Severs: true})
	return nil
}

func (n *Nemesis) shoot(ctx context.Context, a Action) error {
	var pid uint32
	since := history.Now()
	if err := n.Arena.Do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if err := conn.QueryRow(ctx, anySQL, int64(a.Draw>>1)).Scan(&pid); err != nil || pid == 0 {
			return err
		}
		since = history.Now()
		_, err := conn.Exec(ctx, terminateSQL, pid)
		return err
	}); err != nil {
		return err
	}
	n.struck(a, since, history.Event{PID: pid, Severs: pid != 0})
	return nil
}

// cancel aims at the instant at which a lock is granted, among others.
func (n *Nemesis) cancel(ctx context.Context, a Action) error {
	return n.Arena.Do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		since := history.Now()
		for history.Now().Sub(since) < a.For {
			if _, err := conn.Exec(ctx, cancelSQL); err != nil {
				return err
			}
			pause(ctx, time.Millisecond)
		}
		n.struck(a, since, history.Event{})
		return nil
	})
}

// numb stops the process that serves the session which holds. The server has the
// lock for as long as that lasts; the holder must take it for lost.
func (n *Nemesis) numb(ctx context.Context, a Action) error {
	m, hold := n.target(ctx, a)
	if hold.PID == 0 {
		return n.shoot(ctx, a)
	}
	backend, err := os.FindProcess(int(hold.PID))
	if err != nil {
		return err
	}
	since := history.Now()
	switch err := backend.Signal(syscall.SIGSTOP); {
	case errors.Is(err, os.ErrProcessDone):
		return nil // it has let go since
	case err != nil:
		return err
	}
	n.struck(a, since, history.Event{Worker: m.Number(), PID: hold.PID, Severs: true})
	pause(ctx, a.For+silence)
	return backend.Signal(syscall.SIGCONT)
}

func (n *Nemesis) restartFast(ctx context.Context, a Action) error {
	return n.restart(ctx, a, pgtest.Fast)
}

func (n *Nemesis) restartImmediate(ctx context.Context, a Action) error {
	return n.restart(ctx, a, pgtest.Immediate)
}

func (n *Nemesis) restart(ctx context.Context, a Action, how pgtest.Shutdown) error {
	since := history.Now()
	if err := n.Arena.Restart(ctx, how); err != nil {
		return err
	}
	n.struck(a, since, history.Event{Severs: true})
	return nil
}

func (n *Nemesis) fillLockTable(ctx context.Context, a Action) error {
	return n.Arena.Do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		since := history.Now()
		if _, err := conn.Exec(ctx, fillSQL); err != nil {
			return err
		}
		n.struck(a, since, history.Event{})
		pause(ctx, a.For)
		_, err := conn.Exec(ctx, `SELECT pg_advisory_unlock_all()`)
		return err
	})
}
