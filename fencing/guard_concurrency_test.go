package fencing_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// statementOf runs one statement in a transaction.
func statementOf(t *testing.T, sql string) func(pgx.Tx) error {
	t.Helper()
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), sql)
		return err
	}
}

// triggersSQL is how many triggers of this schema there are, without clones.
const triggersSQL = `SELECT count(*) FROM pg_catalog.pg_trigger t JOIN pg_catalog.pg_proc p ON p.oid = t.tgfoid
	WHERE p.pronamespace = 'fencing'::regnamespace AND t.tgrelid <> 'fencing.resource'::regclass AND t.tgparentid = 0`

// inBackground runs a function that the test waits for.
func inBackground(run func() error) <-chan error {
	result := make(chan error, 1)
	// Ends with run, whose result the test receives.
	go func() { result <- run() }()
	return result
}

// waitForWaiter waits until somebody waits for what the transaction has locked.
func (b *bundle) waitForWaiter(t *testing.T, tx pgx.Tx) {
	t.Helper()
	b.waitFor(t, "somebody waits", `SELECT EXISTS (SELECT FROM pg_catalog.pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))`,
		tx.Conn().PgConn().PID())
}

func (b *bundle) begin(t *testing.T, sql string) pgx.Tx {
	t.Helper()
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), sql)
	require.NoError(t, err)
	return tx
}

func TestUnguard_unguardsAllThatBelongsToTheTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for table, c := range map[string]struct{ ddl, member string }{
		"plain": {`CREATE TABLE plain (id int, tenant text, fencing_token bigint)`, ``},
		"p": {`CREATE TABLE p (id int, tenant text, fencing_token bigint) PARTITION BY RANGE (id);
			CREATE TABLE p1 PARTITION OF p DEFAULT PARTITION BY LIST (tenant); CREATE TABLE p2 PARTITION OF p1 DEFAULT`, `p2`},
		"parent": {`CREATE TABLE parent (id int, tenant text, fencing_token bigint);
			CREATE TABLE child () INHERITS (parent); CREATE TABLE grandchild () INHERITS (child, parent)`, `grandchild`},
	} {
		b.exec(t, c.ddl)
		for _, guard := range []string{`SELECT fencing.guard('%s', 'nightly')`, `SELECT fencing.guard_by('%s', 'tenant', 't/')`} {
			b.exec(t, fmt.Sprintf(guard, table))
			require.Empty(t, problems(t, b.pool, "public."+table))
			if c.member != "" {
				err := fencing.Unguard(t.Context(), b.pool, c.member)
				requireCode(t, err, "55000")
				require.ErrorContains(t, err, fmt.Sprintf("public.%s is guarded with public.%s", c.member, table))
			}
			require.NoError(t, fencing.Unguard(t.Context(), b.pool, table))
			require.Zero(t, one[int](t, b.observer, triggersSQL), table)
			require.Zero(t, one[int](t, b.observer, `SELECT count(*) FROM fencing.guarded`))
			requireCode(t, fencing.Unguard(t.Context(), b.pool, table), "55000")
			b.exec(t, fmt.Sprintf(`INSERT INTO %s VALUES (1, 'a'); TRUNCATE %[1]s`, table))
		}
	}
}

func TestGuard_canBeCalledByManyAtOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE x (id int, tenant text) PARTITION BY RANGE (id); CREATE TABLE part PARTITION OF x DEFAULT`)
	blocker := b.begin(t, `LOCK TABLE x IN SHARE ROW EXCLUSIVE MODE`)
	var results []<-chan error
	for i := range 4 {
		resource := []string{"nightly", "hourly"}[i/2]
		results = append(results, inBackground(func() error { return fencing.Guard(t.Context(), b.pool, "x", resource) }))
	}
	b.waitFor(t, "all wait", `SELECT count(*) = 4 FROM pg_catalog.pg_locks WHERE relation = 'x'::regclass AND NOT granted`)
	require.NoError(t, blocker.Commit(t.Context()))
	done := 0
	for _, result := range results {
		if err := receive(t, result); err == nil {
			done++
		} else {
			requireCode(t, err, "55000")
		}
	}
	// Two of them want the same.
	require.Equal(t, 2, done)
	report, err := fencing.Verify(t.Context(), b.pool)
	require.NoError(t, err)
	require.True(t, report.OK(), "%+v", report)
	require.Len(t, report.Tables, 1)
}

func TestGuard_seesAPartitionThatIsBeingAttached(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE x (id int) PARTITION BY RANGE (id); CREATE TABLE part (id int)`)
	attach := b.begin(t, `ALTER TABLE x ATTACH PARTITION part DEFAULT`)
	result := inBackground(func() error { return fencing.Guard(t.Context(), b.pool, "x", "nightly") })
	b.waitForWaiter(t, attach)
	require.NoError(t, attach.Commit(t.Context()))
	require.NoError(t, receive(t, result))
	require.Empty(t, problems(t, b.pool, "public.x"))
	_, err := b.observer.Exec(t.Context(), `TRUNCATE part`)
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
}

func TestGuard_isSeenByAPartitionThatIsAttachedMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE x (id int) PARTITION BY RANGE (id); CREATE TABLE part (id int)`)
	guard := b.begin(t, `SELECT fencing.guard('x', 'nightly')`)
	result := inBackground(func() error {
		_, err := b.pool.Exec(t.Context(), `ALTER TABLE x ATTACH PARTITION part DEFAULT`)
		return err
	})
	b.waitForWaiter(t, guard)
	require.NoError(t, guard.Commit(t.Context()))
	require.NoError(t, receive(t, result))
	requireProblem(t, b.pool, "public.x", "public.part was attached later", "SELECT fencing.guard('public.x', 'nightly')")
	_, err := b.observer.Exec(t.Context(), `INSERT INTO part VALUES (1)`)
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
}

func TestUnguard_givesUpWithItsContextAndChangesNothing(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	reader := b.begin(t, `SELECT FROM exports`)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	result := inBackground(func() error { return fencing.Unguard(ctx, b.pool, "exports") })
	b.waitForWaiter(t, reader)
	cancel()
	require.ErrorIs(t, receive(t, result), context.Canceled)
	// pgx has the server cancel the statement after it has returned.
	b.waitFor(t, "nobody waits", `SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))`,
		reader.Conn().PgConn().PID())
	require.NoError(t, reader.Rollback(t.Context()))
	require.Empty(t, problems(t, b.pool, "public.exports"))
	_, err := b.observer.Exec(t.Context(), `DELETE FROM exports`)
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
}

// Who has read the table may go on to write to it.
func TestUnguard_doesNotDeadlockWithWhoReadsAndThenWrites(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	reader := b.begin(t, `SELECT FROM exports`)
	require.NoError(t, lease.Stamp(t.Context(), reader))
	result := inBackground(func() error { return fencing.Unguard(t.Context(), b.pool, "exports") })
	b.waitForWaiter(t, reader)
	require.NoError(t, write(t.Context(), "exports", 3)(reader))
	require.NoError(t, reader.Commit(t.Context()))
	require.NoError(t, receive(t, result))
	b.exec(t, `DELETE FROM exports WHERE id = 3`)
}
