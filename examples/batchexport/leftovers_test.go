//go:build unix

package main_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/migrations"
)

func (p program) endsBySignal(t *testing.T) {
	t.Parallel()
	for i, moment := range []string{
		"looking for", "loaded", "asks for", "holds the lock", "froze", "terminated", "token 2", "woke", "REFUSED",
	} {
		sig := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}[i%3]
		t.Run(moment, func(t *testing.T) {
			t.Parallel()
			db := newDatabase(t)
			if i%2 == 0 {
				require.NoError(t, migrations.Down(t.Context(), db.pool))
			}
			before := db.snapshot(t)

			live := p.start(t, db.DSN)
			live.waitFor(t, moment)
			require.NoError(t, live.cmd.Process.Signal(sig))
			r := live.wait(t)
			// The later the moment, the more likely is it over already.
			if r.code == 0 {
				require.Contains(t, r.stdout, "All 9 checks passed")
			} else {
				require.Equal(t, "batchexport: "+sig.String()+" signal received\n", r.stderr, r.text())
			}
			db.requireUnchanged(t, before)
		})
	}
}

// failsInSetUp: at the guard, which is the last thing.
func (p program) failsInSetUp(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	require.NoError(t, migrations.Down(t.Context(), db.pool))
	db.exec(t, `CREATE FUNCTION refuse() RETURNS event_trigger LANGUAGE plpgsql AS
		$$ BEGIN RAISE 'no triggers here'; END $$`)
	db.exec(t, "CREATE EVENT TRIGGER refuse ON ddl_command_end WHEN TAG IN ('CREATE TRIGGER') EXECUTE FUNCTION refuse()")
	before := db.snapshot(t)

	r := p.run(t, db.DSN)
	require.Equal(t, 1, r.code, r.text())
	require.Contains(t, r.stderr, "no triggers here")
	db.requireUnchanged(t, before)
}

func (p program) failsInReplica(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	before := db.snapshot(t)

	live := p.start(t, db.DSN)
	schema := live.waitFor(t, `into schema (batchexport_\w+)`)
	db.exec(t, "ALTER TABLE IF EXISTS "+schema+".exports RENAME TO gone")
	r := live.wait(t)
	if r.code == 0 { // the run was faster
		require.Contains(t, r.stdout, "All 9 checks passed")
	} else {
		require.Contains(t, r.stderr, "42P01")
	}
	db.requireUnchanged(t, before)
}

func (p program) endsWithItsReader(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	before := db.snapshot(t)

	live := p.start(t, db.DSN)
	live.waitFor(t, "asks for")
	live.closeOutput()
	r := live.wait(t)
	require.Equal(t, 1, r.code, r.text())
	require.Contains(t, r.stderr, "print the timeline")
	db.requireUnchanged(t, before)
}

// isKilled: what is in the database stays then, but no process and no lock,
// not even those of the frozen replica.
func (p program) isKilled(t *testing.T) {
	t.Parallel()
	db := newDatabase(t)
	live := p.start(t, db.DSN)
	live.waitFor(t, "froze")
	require.NoError(t, live.cmd.Process.Kill())
	live.wait(t)
	db.requireNoSessions(t)
}
