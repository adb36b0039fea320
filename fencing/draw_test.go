package fencing_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// broken are ways in which no token can be drawn although the lock is free.
var broken = map[string]struct {
	how, repair string
	code        string
	sentinel    error
}{
	"sequence exhausted": {
		how:    `SELECT setval('fencing.token', 9007199254740991)`,
		repair: `SELECT setval('fencing.token', 1)`,
		code:   "2200H",
	},
	"sequence gone": {
		how:    `ALTER SEQUENCE fencing.token RENAME TO lost`,
		repair: `ALTER SEQUENCE fencing.lost RENAME TO token`,
		code:   "42P01",
	},
	"mark refused": {
		how:    `ALTER TABLE fencing.resource ADD CONSTRAINT full_up CHECK (false) NOT VALID`,
		repair: `ALTER TABLE fencing.resource DROP CONSTRAINT full_up`,
		code:   "23514",
	},
	"function gone": {
		how:      `ALTER FUNCTION fencing.issue(text) RENAME TO lost`,
		repair:   `ALTER FUNCTION fencing.lost(text) RENAME TO issue`,
		code:     "42883",
		sentinel: fencing.ErrNotInstalled,
	},
	"schema gone": {
		how:      `ALTER SCHEMA fencing RENAME TO lost`,
		repair:   `ALTER SCHEMA lost RENAME TO fencing`,
		code:     "3F000",
		sentinel: fencing.ErrNotInstalled,
	},
}

func TestLock_isGivenBackWhenNoTokenCanBeDrawn(t *testing.T) {
	t.Parallel()
	for name, c := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			old := b.lock(t, b.fencer, "nightly")
			require.NoError(t, old.Unlock(t.Context()))
			b.exec(t, c.how)

			_, err := b.fencer.TryLock(t.Context(), "nightly")
			requireCode(t, err, c.code)
			requireIsOnly(t, err, c.sentinel)
			b.waitForNoLock(t)
			_, err = b.fencer.Lock(t.Context(), "nightly")
			requireCode(t, err, c.code)
			requireIsOnly(t, err, c.sentinel)
			b.waitForNoLock(t)
			require.Zero(t, b.pool.Stat().AcquiredConns())

			b.exec(t, c.repair)
			require.Equal(t, old.Token(), b.mark(t, "nightly"))
			require.Greater(t, b.lock(t, b.fencer, "nightly").Token(), old.Token())
		})
	}
}

// The draw fails on the path of a lock that had to be waited for. Only what the
// server looks up in tables can break there for sure: it may still know by its
// name what was renamed since the wait began.
func TestLock_isGivenBackWhenNoTokenCanBeDrawnAfterAWait(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"sequence exhausted", "mark refused"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			held := b.lock(t, b.fencer, "nightly")
			result := lockInBackground(t.Context(), b.another(t), "nightly")
			b.waitFor(t, "the other one waits", `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks
				WHERE locktype = 'advisory' AND NOT granted AND $1 = ANY (pg_blocking_pids(pid)))`, held.BackendPID())
			b.exec(t, broken[name].how)
			require.NoError(t, held.Unlock(t.Context()))

			got := receive(t, result)
			requireCode(t, got.err, broken[name].code)
			requireIsOnly(t, got.err, nil)
			b.waitForNoLock(t)
		})
	}
}

func requireIsOnly(t *testing.T, err, sentinel error) {
	t.Helper()
	for _, s := range []error{
		fencing.ErrStale, fencing.ErrUnstamped, fencing.ErrUnknownToken, fencing.ErrNotInstalled,
		advisory.ErrNotAcquired, advisory.ErrLost,
	} {
		if errors.Is(s, sentinel) {
			require.ErrorIs(t, err, s)
		} else {
			require.NotErrorIs(t, err, s)
		}
	}
}

func TestFencer_saysThatFencingIsNotInstalled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE exports (id int)`)
	require.NoError(t, migrations.Down(t.Context(), b.pool))

	_, err := b.fencer.TryLock(t.Context(), "nightly")
	require.ErrorIs(t, err, fencing.ErrNotInstalled)
	require.ErrorContains(t, err, "migrations.Up")
	_, err = b.fencer.Lock(t.Context(), "nightly")
	require.ErrorIs(t, err, fencing.ErrNotInstalled)
	never := func(context.Context, *fencing.Lease) error { panic("not reached") }
	require.ErrorIs(t, b.fencer.Do(t.Context(), "nightly", never), fencing.ErrNotInstalled)
	require.ErrorIs(t, b.fencer.TryDo(t.Context(), "nightly", never), fencing.ErrNotInstalled)
	require.ErrorIs(t, fencing.Guard(t.Context(), b.pool, "exports", "nightly"), fencing.ErrNotInstalled)
	require.ErrorIs(t, fencing.Unguard(t.Context(), b.pool, "exports"), fencing.ErrNotInstalled)
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, fencing.Stamp(t.Context(), tx, "nightly", 1), fencing.ErrNotInstalled)
	require.NoError(t, tx.Rollback(t.Context()))
	b.waitForNoLock(t)
}

// What a role is set to for its queries does not concern the wait for a lock.
func TestLock_waitsThroughTheTimeoutsOfItsRole(t *testing.T) {
	t.Parallel()
	for _, setting := range []string{"statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"} {
		t.Run(setting, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			old, tx := inFlight(t, b)
			fencer := b.another(t, with(setting, "100ms"), with("application_name", "contender"))
			result := lockInBackground(t.Context(), fencer, "nightly")
			b.waitFor(t, "it waits", `SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE '%contender' AND $1 = ANY (pg_blocking_pids(pid)))`, tx.Conn().PgConn().PID())
			b.waitFor(t, "it has waited for longer than that, or given up", `SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
				WHERE datname = current_database() AND application_name LIKE '%contender' AND now() - query_start < interval '150ms')`)
			require.NoError(t, tx.Commit(t.Context()))
			got := receive(t, result)
			require.NoError(t, got.err)
			require.Greater(t, got.lease.Token(), old.Token())
		})
	}
}

// The snapshot of the statement that draws may be older than what it waits for,
// whatever isolation level the role has by default.
func TestLock_isNotDisturbedByAMarkThatMovesWhileItWaits(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			old := b.lock(t, b.fencer, "nightly")
			require.NoError(t, old.Unlock(t.Context()))
			tx, err := b.pool.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(t.Context()) }()
			_, err = tx.Exec(t.Context(), `UPDATE fencing.resource SET mark = mark + 10`)
			require.NoError(t, err)
			fencer := b.another(t, with("default_transaction_isolation", string(level)))
			result := lockInBackground(t.Context(), fencer, "nightly")
			b.waitForIssue(t, tx)
			require.NoError(t, tx.Commit(t.Context()))

			got := receive(t, result)
			require.NoError(t, got.err)
			require.Greater(t, got.lease.Token(), old.Token()+10)
			require.Equal(t, got.lease.Token(), b.mark(t, "nightly"))
		})
	}
}
