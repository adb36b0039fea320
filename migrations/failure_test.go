package migrations_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/migrations"
)

// requireState says that the state is the clean one of the version: of what each
// migration makes, all or nothing is there.
func (b *bundle) requireState(t *testing.T, version int64) {
	t.Helper()
	require.Equal(t, version, b.version(t))
	for name, since := range map[string]int64{"fencing.resource": 1, "fencing.token": 1, "fencing.guarded": 2} {
		require.Equal(t, version >= since, one[bool](t, b.observer, `SELECT to_regclass($1) IS NOT NULL`, name), name)
	}
	for name, since := range map[string]int64{"fencing.issue(text)": 1, "fencing.grant_to(regrole)": 1, "fencing.guard(regclass, text)": 2, "fencing.verify()": 2} {
		require.Equal(t, version >= since, one[bool](t, b.observer, `SELECT to_regprocedure($1) IS NOT NULL`, name), name)
	}
}

func TestUp_leavesNothingHalfWhenAMigrationFails(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.NoError(t, b.goTo(t, 1))
	// In the way of one of the last functions.
	b.exec(t, `CREATE FUNCTION fencing.unguard(target regclass) RETURNS int LANGUAGE sql AS 'SELECT 1'`)
	pool := b.db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	err := migrations.Up(t.Context(), pool)
	requireCode(t, err, "42723")
	require.ErrorContains(t, err, "migrations: up")
	b.exec(t, `DROP FUNCTION fencing.unguard(regclass)`)
	b.requireState(t, 1)
	b.waitForNoLock(t)
	requireGivenBack(t, pool)

	require.NoError(t, migrations.Up(t.Context(), pool))
	b.requireWhole(t)
}

func TestUp_needsThePrivilegeToCreateASchema(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role := "pgtest_role_" + strings.ToLower(rand.Text())
	b.exec(t, `CREATE ROLE `+role)
	conn := b.db.Conn(t)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), `DROP OWNED BY `+role+`; DROP ROLE `+role)
		require.NoError(t, err)
	})
	pool := b.db.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["role"] = role })
	requireCode(t, migrations.Up(t.Context(), pool), "42501")
	b.requireNothing(t)
	b.waitForNoLock(t)

	// And no other.
	b.exec(t, `GRANT CREATE ON DATABASE `+b.db.Name+` TO `+role)
	require.NoError(t, migrations.Up(t.Context(), pool))
	b.requireWhole(t)
	require.NoError(t, migrations.Down(t.Context(), pool))
	b.requireNothing(t)
}

// interruptions are ways in which a run can end in the middle: what another
// session says about its backend, or nothing, when its context ends.
var interruptions = map[string]string{
	"backend terminated":  `SELECT pg_terminate_backend($1)`,
	"statement cancelled": `SELECT pg_cancel_backend($1)`,
	"context ended":       ``,
}

func TestUp_leavesNothingHalfWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	for name, sql := range interruptions {
		for _, tag := range []string{"CREATE SEQUENCE", "CREATE FUNCTION", "REVOKE"} {
			t.Run(name+" in "+tag, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				goOn := b.stall(t, tag)
				b.interrupt(t, migrations.Up, sql)
				b.requireState(t, 0)
				goOn()
				b.waitForNoLock(t)
				b.up(t)
				b.requireWhole(t)
			})
		}
	}
}

func TestDown_leavesNothingHalfWhenItIsInterrupted(t *testing.T) {
	t.Parallel()
	for name, sql := range interruptions {
		for _, tag := range []string{"DROP FUNCTION", "DROP SEQUENCE"} {
			t.Run(name+" in "+tag, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.up(t)
				goOn := b.stall(t, tag)
				b.interrupt(t, migrations.Down, sql)
				b.requireState(t, newest)
				goOn()
				b.waitForNoLock(t)
				require.NoError(t, migrations.Down(t.Context(), b.pool))
				b.requireNothing(t)
			})
		}
	}
}

// Between the migrations and the end of the schema there is a commit. A later
// Down finishes what was interrupted there, and a later Up is not in its way.
func TestDown_finishesWhatAnEarlierOneLeft(t *testing.T) {
	t.Parallel()
	for name, sql := range interruptions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.up(t)
			goOn := b.stall(t, "DROP SCHEMA")
			b.interrupt(t, migrations.Down, sql)
			b.requireState(t, 0)
			goOn()
			b.waitForNoLock(t)
			require.NoError(t, migrations.Down(t.Context(), b.pool))
			b.requireNothing(t)
			b.up(t)
			b.requireWhole(t)
		})
	}
}

// interrupt interrupts a run that is stalled, and waits until its session is
// over.
func (b *bundle) interrupt(t *testing.T, run func(context.Context, *pgxpool.Pool) error, sql string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pool := b.db.Pool(t)
	result := inBackground(func() error { return run(ctx, pool) })
	pid := b.waitForStalled(t)
	if sql == "" {
		cancel()
	} else {
		b.exec(t, sql, pid)
	}
	err := receive(t, result)
	require.Error(t, err)
	if ctx.Err() != nil {
		require.ErrorIs(t, err, context.Canceled)
	}
	requireGivenBack(t, pool)
	b.waitFor(t, "the run is over on the server too", `SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_locks
		WHERE pid = $1 AND locktype = 'advisory')`, pid)
}
