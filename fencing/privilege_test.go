package fencing_test

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// role creates a role, which the whole server sees, until the test's end.
func (b *bundle) role(t *testing.T) string {
	t.Helper()
	name := "pgtest_role_" + strings.ToLower(rand.Text())
	b.exec(t, `CREATE ROLE `+name)
	conn := b.db.Conn(t)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), `DROP OWNED BY `+name+` CASCADE; DROP ROLE `+name)
		require.NoError(t, err)
	})
	return name
}

// as is a pool whose sessions are the role's.
func (b *bundle) as(t *testing.T, role string) *pgxpool.Pool {
	t.Helper()
	return b.db.Pool(t, with("role", role), large)
}

func TestGrantTo_givesAllThatLockingAndWritingNeed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	role := b.role(t)
	b.exec(t, `GRANT SELECT, INSERT, UPDATE, DELETE ON exports TO `+role)
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	pool := b.as(t, role)
	require.Equal(t, role, one[string](t, pool, `SELECT current_user`))
	fencer := newFencer(t, pool, nil, nil)

	old, err := fencer.TryLock(t.Context(), "nightly")
	require.NoError(t, err)
	require.NoError(t, old.InTx(t.Context(), pool, write(t.Context(), "exports", 3)))
	require.NoError(t, old.Unlock(t.Context()))
	current := b.lock(t, fencer, "nightly")
	require.NoError(t, current.InTx(t.Context(), pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `DELETE FROM exports WHERE id = 3`)
		return err
	}))
	require.ErrorIs(t, old.InTx(t.Context(), pool, write(t.Context(), "exports", 4)), fencing.ErrStale)
	require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
	require.Equal(t, current.Token(), one[fencing.Token](t, pool, `SELECT mark FROM fencing.resource`))
}

func TestGrantTo_givesNothingByWhichAMarkOrAGuardCouldBeMoved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.exec(t, `CREATE TABLE imports (id int, tenant text)`)
	role := b.role(t)
	b.exec(t, `GRANT ALL ON exports, imports TO `+role)
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	current := b.lock(t, b.fencer, "nightly")
	before := b.contents(t, "fencing.resource")
	pool := b.as(t, role)

	for _, sql := range []string{
		`UPDATE fencing.resource SET mark = 1`,
		`INSERT INTO fencing.resource (name, mark) VALUES ('hourly', 1)`,
		`DELETE FROM fencing.resource`,
		`TRUNCATE fencing.resource`,
		`SELECT mark FROM fencing.resource FOR UPDATE`,
		`DO $$ BEGIN LOCK TABLE fencing.resource IN EXCLUSIVE MODE; END $$`,
		`SELECT setval('fencing.token', 1)`,
		`SELECT nextval('fencing.token')`,
		`ALTER SEQUENCE fencing.token RESTART`,
		`DROP TRIGGER fencing_guard ON exports`,
		`ALTER TRIGGER fencing_guard ON exports RENAME TO off`,
		`ALTER TABLE exports DISABLE TRIGGER fencing_guard`,
		`ALTER TABLE exports DISABLE TRIGGER ALL`,
		`SELECT fencing.unguard('exports')`,
		`SELECT fencing.record('exports', NULL, NULL, NULL, false)`,
		`SELECT fencing.record('imports', 'hourly', NULL, '', true)`,
		`SELECT fencing.guard('imports', 'hourly')`,
		`SELECT fencing.guard_by('imports', 'tenant')`,
		`SELECT fencing.start('imports', 'hourly', NULL, '')`,
		`SELECT fencing.complete('imports', 'hourly', NULL, '')`,
		`SELECT fencing.check_write('nightly', 'INSERT', 'public', 'exports')`,
		`SELECT fencing.check_values('{nightly}', 'tenant', '', 'INSERT', 'public', 'exports')`,
		`SELECT fencing.rebase()`,
		`INSERT INTO fencing.guarded (target, resource) VALUES ('imports', 'hourly')`,
		`DELETE FROM fencing.guarded`,
		`UPDATE fencing.origin SET epoch = 'unknown'`,
		`SET session_replication_role = replica`,
		`CREATE OR REPLACE FUNCTION fencing.check_statement() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'`,
		`ALTER FUNCTION fencing.check_statement() RESET ALL`,
		`DROP FUNCTION fencing.check_statement() CASCADE`,
		`CREATE TABLE fencing.mine (id int)`,
		`DROP SCHEMA fencing CASCADE`,
		`ALTER TABLE exports RENAME TO elsewhere`,
		`DROP TABLE exports`,
	} {
		_, err := pool.Exec(t.Context(), sql)
		var pgErr *pgconn.PgError
		require.ErrorAs(t, err, &pgErr, sql)
		require.Equal(t, "42501", pgErr.Code, "%s: %s", sql, pgErr.Message)
	}
	require.Equal(t, before, b.contents(t, "fencing.resource"))
	report, err := fencing.Verify(t.Context(), pool)
	require.NoError(t, err)
	require.Equal(t, &fencing.Report{Tables: []fencing.TableReport{{Table: "public.exports", Resource: "nightly"}}}, report)
	_, err = pool.Exec(t.Context(), `INSERT INTO exports VALUES (3)`)
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
	require.NoError(t, current.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)))
}

func TestGrantTo_canNotBePassedOn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role, other := b.role(t), b.role(t)
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	// A grant without the option to grant is an error or a warning.
	_, err := b.as(t, role).Exec(t.Context(), `SELECT fencing.grant_to($1::text::regrole)`, other)
	if err != nil {
		requireCode(t, err, "42501")
	}
	const sql = `SELECT has_schema_privilege($1, 'fencing', 'USAGE')
		OR has_function_privilege($1, 'fencing.issue(text)', 'EXECUTE')`
	require.True(t, one[bool](t, b.observer, sql, role))
	require.False(t, one[bool](t, b.observer, sql, other))
}

func TestGrantTo_takesRolesOfOddNames(t *testing.T) {
	t.Parallel()
	b := setup(t)
	name := `"` + rand.Text() + ` the ""app"""`
	b.exec(t, `CREATE ROLE `+name)
	conn := b.db.Conn(t)
	t.Cleanup(func() {
		_, err := conn.Exec(context.Background(), `DROP OWNED BY `+name+` CASCADE; DROP ROLE `+name)
		require.NoError(t, err)
	})
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, name)
	b.exec(t, `SET ROLE `+name)
	require.Positive(t, one[int64](t, b.observer, issueWithLockSQL, "nightly"))
	_, err := b.observer.Exec(t.Context(), `SELECT fencing.grant_to(NULL)`)
	requireCode(t, err, "22023")
	b.exec(t, `RESET ROLE`)
}

func TestFencer_leavesNothingWhenItsRoleHasNoGrant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	role := b.role(t)
	b.exec(t, `GRANT ALL ON exports TO `+role)
	for _, grant := range []string{``, `GRANT USAGE ON SCHEMA fencing TO ` + role} {
		b.exec(t, `SELECT 1; `+grant)
		pool := b.as(t, role)
		fencer := newFencer(t, pool, nil, nil)
		_, err := fencer.TryLock(t.Context(), "nightly")
		requireCode(t, err, "42501")
		require.ErrorContains(t, err, "permission denied for ")
		requireIsOnly(t, err, nil)
		b.waitForNoLock(t)
		_, err = fencer.Lock(t.Context(), "nightly")
		requireCode(t, err, "42501")
		b.waitForNoLock(t)
		require.Zero(t, b.mark(t, "nightly"))

		tx, err := pool.Begin(t.Context())
		require.NoError(t, err)
		requireCode(t, fencing.Stamp(t.Context(), tx, "nightly", 1), "42501")
		require.NoError(t, tx.Rollback(t.Context()))
		// To be told why a write is refused takes no privilege.
		_, err = pool.Exec(t.Context(), `INSERT INTO exports VALUES (3)`)
		require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
	}
}

func TestGuard_isForTheTablesOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE exports (id int PRIMARY KEY, note text)`)
	owner, other := b.role(t), b.role(t)
	b.exec(t, `ALTER TABLE exports OWNER TO `+owner)
	for _, role := range []string{owner, other} {
		b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	}
	requireCode(t, fencing.Guard(t.Context(), b.as(t, other), "exports", "nightly"), "42501")
	require.Zero(t, one[int](t, b.observer, guardsSQL))
	require.NoError(t, fencing.Guard(t.Context(), b.as(t, owner), "exports", "nightly"))
	requireCode(t, fencing.Unguard(t.Context(), b.as(t, other), "exports"), "42501")
	require.Equal(t, 1, one[int](t, b.observer, guardsSQL))

	pool := b.as(t, owner)
	lease := b.lock(t, newFencer(t, pool, nil, nil), "nightly")
	require.NoError(t, lease.InTx(t.Context(), pool, write(t.Context(), "exports", 3)))
	_, err := pool.Exec(t.Context(), `INSERT INTO exports VALUES (4)`)
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
	require.NoError(t, fencing.Unguard(t.Context(), pool, "exports"))
	require.Zero(t, one[int](t, b.observer, guardsSQL))
}
