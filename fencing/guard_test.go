package fencing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

const guardsSQL = `SELECT count(*) FROM pg_catalog.pg_trigger WHERE tgname = 'fencing_guard'`

func TestGuard_refusesWhatItCantGuard(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for name, c := range map[string]struct {
		make, table, code, message string
	}{
		"missing table":      {``, `exports`, "42P01", `"exports" does not exist`},
		"missing schema":     {``, `nowhere.exports`, "3F000", `"nowhere" does not exist`},
		"no name":            {``, ``, "42602", `invalid name`},
		"view":               {`CREATE VIEW v AS SELECT 1 AS id`, `v`, "42809", `v can't be guarded: public.v is not a table of this database`},
		"materialized view":  {`CREATE MATERIALIZED VIEW m AS SELECT 1 AS id`, `m`, "42809", `is not a table of this database`},
		"sequence":           {`CREATE SEQUENCE s`, `s`, "42809", `is not a table of this database`},
		"index":              {`CREATE TABLE a (id int); CREATE INDEX i ON a (id)`, `i`, "42809", `is not a table of this database`},
		"partition":          {partitionSQL, `p1`, "42809", `p1 can't be guarded alone: it belongs to public.p`},
		"inheritance child":  {inheritSQL, `child`, "42809", `child can't be guarded alone: it belongs to public.parent`},
		"two parents":        {inheritSQL + `; CREATE TABLE other (id int); ALTER TABLE child INHERIT other`, `parent`, "42809", `public.child belongs to public.other as well`},
		"foreign partition":  {partitionSQL + `; ` + foreignSQL + `; CREATE FOREIGN TABLE p2 PARTITION OF p FOR VALUES FROM (1) TO (2) SERVER s`, `p`, "42809", `public.p2 is not a table`},
		"unlogged partition": {partitionSQL + `; CREATE UNLOGGED TABLE p2 PARTITION OF p FOR VALUES FROM (1) TO (2)`, `p`, "42809", `public.p2 is temporary or unlogged`},
		"fencing_token text": {`CREATE TABLE t (fencing_token text)`, `t`, "42804", `the column fencing_token of public.t is not a bigint`},
		"foreign table": {
			foreignSQL + `; CREATE FOREIGN TABLE f (id int) SERVER s`,
			`f`, "42809", `is not a table of this database`,
		},
		"unlogged table": {`CREATE UNLOGGED TABLE u (id int)`, `u`, "42809", `public.u is temporary or unlogged`},
		"temporary table": {
			`CREATE TEMP TABLE x (id int)`, `pg_temp.x`, "42809", `is temporary or unlogged`,
		},
	} {
		err := guardNew(t.Context(), b.pool, c.make, c.table)
		requireCode(t, err, c.code)
		require.ErrorContains(t, err, c.message, name)
		require.ErrorContains(t, err, "fencing: guard "+c.table, name)
		requireIsOnly(t, err, nil)
	}
}

// guardNew guards what it has made, and leaves nothing of it.
func guardNew(ctx context.Context, pool *pgxpool.Pool, ddl, table string) (err error) {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tx.Rollback(ctx)) }()
	if _, err := tx.Exec(ctx, ddl); err != nil {
		return err
	}
	return fencing.Guard(ctx, tx, table, "nightly")
}

const (
	partitionSQL = `CREATE TABLE p (id int) PARTITION BY RANGE (id); CREATE TABLE p1 PARTITION OF p DEFAULT`
	foreignSQL   = `CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w`
	inheritSQL   = `CREATE TABLE parent (id int); CREATE TABLE child () INHERITS (parent)`
)

func TestGuard_againForTheSameResourceChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	const sql = `SELECT oid::bigint FROM pg_catalog.pg_trigger WHERE tgname = 'fencing_guard'`
	before := one[int64](t, b.observer, sql)
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "public.exports", "nightly"))
	require.Equal(t, before, one[int64](t, b.observer, sql))
}

func TestGuard_forAnotherResourceIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", `the "nightly" one`)
	err := fencing.Guard(t.Context(), b.pool, "exports", "hourly")
	requireCode(t, err, "55000")
	require.ErrorContains(t, err, `exports is guarded for resource "the \"nightly\" one" already`)

	// The first guard is still the one.
	lease := b.lock(t, b.fencer, `the "nightly" one`)
	require.NoError(t, lease.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)))
	lease = b.lock(t, b.fencer, "hourly")
	require.ErrorIs(t, lease.InTx(t.Context(), b.pool, write(t.Context(), "exports", 4)), fencing.ErrUnstamped)
}

func TestGuard_guardsSeveralTablesForOneResource(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE SCHEMA archive`)
	b.guarded(t, "exports", "nightly")
	b.guarded(t, "archive.exports", "nightly")
	old, current := b.superseded(t, "nightly")
	for table, full := range map[string]string{"exports": "public.exports", "archive.exports": "archive.exports"} {
		var stale *fencing.StaleError
		require.ErrorAs(t, old.InTx(t.Context(), b.pool, write(t.Context(), table, 3)), &stale)
		require.Equal(t, full, stale.Table)
		require.NoError(t, current.InTx(t.Context(), b.pool, write(t.Context(), table, 3)))
	}
}

func TestUnguard_letsEverybodyWriteAgain(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	old, _ := b.superseded(t, "nightly")
	mark := b.mark(t, "nightly")
	require.NoError(t, fencing.Unguard(t.Context(), b.pool, "exports"))
	require.Zero(t, one[int](t, b.observer, guardsSQL))
	b.exec(t, `INSERT INTO exports VALUES (3, 'three')`)
	require.NoError(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 4)))
	require.Equal(t, mark, b.mark(t, "nightly"))

	// And guarded again, also for another resource, the table is as before.
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "exports", "hourly"))
	_, err := b.observer.Exec(t.Context(), `DELETE FROM exports`)
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
}

func TestUnguard_refusesWhatIsNotGuarded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE exports (id int)`)
	err := fencing.Unguard(t.Context(), b.pool, "exports")
	requireCode(t, err, "55000")
	require.ErrorContains(t, err, "fencing: unguard exports")
	require.ErrorContains(t, err, "is not guarded")

	err = fencing.Unguard(t.Context(), b.pool, "imports")
	requireCode(t, err, "42P01")
	requireIsOnly(t, err, nil)
}

// A schema may have a name that only looks like that of this package.
func TestGuard_tellsAMissingSchemaFromAMissingInstallation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	err := fencing.Guard(t.Context(), b.pool, "fencing_archive.exports", "nightly")
	requireCode(t, err, "3F000")
	requireIsOnly(t, err, nil)
}

func TestGuard_givesUpWithItsContextAndChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE exports (id int PRIMARY KEY, note text)`)
	user, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = user.Rollback(t.Context()) }()
	require.NoError(t, write(t.Context(), "exports", 1)(user))

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := make(chan error, 1)
	// Ends with Guard, whose result the test receives.
	go func() { result <- fencing.Guard(ctx, b.pool, "exports", "nightly") }()
	waiting := `SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))`
	b.waitFor(t, "Guard waits", waiting, user.Conn().PgConn().PID())
	cancel()
	require.ErrorIs(t, receive(t, result), context.Canceled)
	b.waitFor(t, "nobody waits", `SELECT NOT (`+waiting+`)`, user.Conn().PgConn().PID())
	require.NoError(t, user.Commit(t.Context()))
	require.Zero(t, one[int](t, b.observer, guardsSQL))
	b.exec(t, `INSERT INTO exports VALUES (2)`)
}

// Guard does not let a transaction through that began to write before.
func TestGuard_waitsForTransactionsThatUseTheTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE exports (id int PRIMARY KEY, note text)`)
	user, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = user.Rollback(t.Context()) }()
	require.NoError(t, write(t.Context(), "exports", 1)(user))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	result := make(chan error, 1)
	// Ends with Guard, whose result the test receives.
	go func() { result <- fencing.Guard(ctx, b.pool, "exports", "nightly") }()
	b.waitFor(t, "Guard waits", `SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
		WHERE $1 = ANY (pg_blocking_pids(pid)))`, user.Conn().PgConn().PID())
	require.NoError(t, user.Commit(t.Context()))
	require.NoError(t, receive(t, result))
	_, err = b.observer.Exec(t.Context(), `INSERT INTO exports VALUES (2)`)
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
}
