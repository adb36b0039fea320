package fencing_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// readBySQL is how many pages of the marks, and of their index, this transaction has read.
const readBySQL = `SELECT pg_stat_get_xact_blocks_fetched('fencing.resource'::regclass) + pg_stat_get_xact_blocks_fetched('fencing.resource_pkey'::regclass)`

// A snapshot that stays open, as that of pg_dump, keeps each version of a mark. Neither a check
// nor the next token walks them.
func TestIssue_costsTheSameWhileAnOldSnapshotIsOpen(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.exec(t, `CREATE TABLE orders (id int, tenant text)`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "orders", "tenant"))
	b.exec(t, `SELECT fencing.issue('nightly')`)
	snapshot, err := b.db.Conn(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	require.Equal(t, 1, one[int](t, snapshot, `SELECT count(*) FROM fencing.resource`))
	const issues = 3000
	b.exec(t, `SET synchronous_commit = off; CREATE PROCEDURE issue_many(n int) LANGUAGE plpgsql AS $$ BEGIN
		FOR i IN 1..n LOOP PERFORM fencing.issue('nightly'); COMMIT; END LOOP; END $$`)
	b.exec(t, `CALL issue_many(3000)`)
	b.exec(t, `VACUUM ANALYZE fencing.resource`)
	require.Equal(t, fencing.Token(1+issues), b.mark(t, "nightly"))
	require.Greater(t, one[int](t, b.observer, `SELECT pg_relation_size('fencing.resource') / current_setting('block_size')::int`), 20, "the versions are there")

	for _, level := range levels {
		conn := b.db.Conn(t)
		_, err := conn.Exec(t.Context(), `BEGIN ISOLATION LEVEL `+string(level)+`; SELECT fencing.stamp('nightly', 3001)`)
		require.NoError(t, err)
		for _, sql := range []string{`INSERT INTO exports VALUES (3)`, `INSERT INTO orders VALUES (3, 'nightly')`} {
			before := one[int](t, conn, readBySQL)
			_, err = conn.Exec(t.Context(), sql)
			require.NoError(t, err)
			require.LessOrEqual(t, one[int](t, conn, readBySQL)-before, 12, "%s, %s", level, sql)
		}
		_, err = conn.Exec(t.Context(), `ROLLBACK; BEGIN ISOLATION LEVEL `+string(level))
		require.NoError(t, err)
		before := one[int](t, conn, readBySQL)
		require.Positive(t, one[int64](t, conn, `SELECT fencing.issue('nightly')`))
		require.LessOrEqual(t, one[int](t, conn, readBySQL)-before, 12, level)
		_, err = conn.Exec(t.Context(), `ROLLBACK`)
		require.NoError(t, err)
	}
	require.NoError(t, snapshot.Rollback(t.Context()))
}

// Refusing a resource that nobody has ever locked leaves nothing behind.
func TestGuard_refusesAnInventedResourceWithoutWriting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE orders (id int, tenant text)`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "orders", "tenant"))
	b.exec(t, `SELECT fencing.issue('nightly')`)
	const sizeSQL = `SELECT sum(pg_relation_size(c.oid)) FROM pg_class c WHERE c.relnamespace = 'fencing'::regnamespace`
	before := one[int64](t, b.observer, sizeSQL)
	for _, level := range levels {
		for _, token := range []string{`1`, `7`, `9000000000000000`} {
			conn := b.db.Conn(t)
			_, err := conn.Exec(t.Context(), `BEGIN ISOLATION LEVEL `+string(level)+`; SELECT fencing.stamp('invented', `+token+`)`)
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), `INSERT INTO orders VALUES (1, 'invented')`)
			if level != pgx.ReadCommitted && token == `1` {
				requireCode(t, err, "40001") // for all it sees it could have been issued since
				require.ErrorContains(t, err, "sees no token")
			} else {
				requireCode(t, err, "LF003")
			}
			_, err = conn.Exec(t.Context(), `ROLLBACK`)
			require.NoError(t, err)
		}
	}
	require.Equal(t, before, one[int64](t, b.observer, sizeSQL))
	const writtenSQL = `SELECT coalesce(sum(pg_stat_get_tuples_inserted(c.oid)), 0) FROM pg_class c WHERE c.relname IN ('resource', 'known_resource') AND c.relnamespace = 'fencing'::regnamespace`
	require.LessOrEqual(t, one[int](t, b.observer, writtenSQL), 2)
}

// A transaction may be stamped for thousands of resources. Each stamp is found without reading
// the others.
func TestStamp_ofManyResources(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE orders (id int, tenant text, fencing_token bigint); CREATE TABLE exports (id int, note text)`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "orders", "tenant"))
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "exports", `a"b\c`))
	const n = 1000
	conn := b.db.Conn(t)
	_, err := conn.Exec(t.Context(), `CREATE TEMP TABLE held AS SELECT 'tenant ' || i AS name, fencing.issue('tenant ' || i) AS token FROM generate_series(1, 1000) i`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `INSERT INTO held SELECT 'a"b\c', fencing.issue('a"b\c') UNION ALL SELECT E'a\n"tenant 1":', fencing.issue(E'a\n"tenant 1":')`)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `BEGIN; SELECT fencing.stamp(name, token) FROM held`)
	require.NoError(t, err)
	require.Equal(t, n+2, one[int](t, conn, `SELECT count(*) FROM held WHERE fencing.stamped(name) = token`))
	require.Equal(t, n+2, one[int](t, conn, `SELECT count(*) FROM jsonb_each(current_setting('fencing.stamps')::jsonb)`), "it is JSON as well")
	for _, sql := range []string{
		`INSERT INTO orders SELECT 1, name FROM held`, // all at once
		`DO $$ DECLARE h record; BEGIN FOR h IN SELECT * FROM held LOOP INSERT INTO orders VALUES (2, h.name); END LOOP; END $$`, // one by one
		`INSERT INTO exports VALUES (1, 'quoted')`,
	} {
		_, err = conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	require.Equal(t, 2*(n+2), one[int](t, conn, `SELECT count(*) FROM orders o JOIN held h ON h.name = o.tenant AND h.token = o.fencing_token`))
	// A stamp that is made anew replaces the first one.
	_, err = conn.Exec(t.Context(), `SELECT fencing.stamp('tenant 1', 999999)`)
	require.NoError(t, err)
	require.Equal(t, 999999, one[int](t, conn, `SELECT fencing.stamped('tenant 1')`))
	require.Equal(t, n+2, one[int](t, conn, `SELECT count(*) FROM jsonb_each(current_setting('fencing.stamps')::jsonb)`))
	_, err = conn.Exec(t.Context(), `INSERT INTO orders VALUES (3, 'tenant 2'), (3, 'tenant 1')`)
	requireCode(t, err, "LF003")
	_, err = conn.Exec(t.Context(), `ROLLBACK`)
	require.NoError(t, err)
}

// A statement that writes for very many resources without a stamp is refused before it takes
// a lock for each of them.
func TestGuardBy_refusesAnUnstampedImportWithoutManyLocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE orders (id int, tenant text)`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "orders", "tenant"))
	for _, stamps := range []string{``, `{"tenant 1":1}`} {
		conn := b.db.Conn(t)
		_, err := conn.Exec(t.Context(), `SET fencing.stamps = '`+stamps+`'; BEGIN; SAVEPOINT s`)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), `INSERT INTO orders SELECT i, 'tenant ' || i FROM generate_series(1, 50000) i`)
		require.Error(t, err)
		require.NotEqual(t, "53200", sqlState(err), "out of shared memory")
	}
}

// What keeps the mark from being raised is an error, and not a call that never ends.
func TestIssue_endsWhereTheMarkCannotBeRaised(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `SELECT fencing.issue('nightly')`)
	b.exec(t, `CREATE RULE keep AS ON UPDATE TO fencing.resource DO INSTEAD NOTHING`)
	_, err := b.fencer.TryLock(t.Context(), "nightly")
	requireCode(t, err, "0A000") // as the server has it
	b.waitForNoLock(t)
	b.exec(t, `DROP RULE keep ON fencing.resource;
		CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER nothing BEFORE UPDATE ON fencing.resource FOR EACH ROW EXECUTE FUNCTION nothing()`)
	_, err = b.fencer.TryLock(t.Context(), "nightly")
	requireCode(t, err, "55000")
	b.waitForNoLock(t)
	b.exec(t, `DROP TRIGGER nothing ON fencing.resource`)
	require.Greater(t, b.lock(t, b.fencer, "nightly").Token(), fencing.Token(1))
}

func sqlState(err error) string {
	if pgErr, is := errors.AsType[*pgconn.PgError](err); is {
		return pgErr.Code
	}
	return ""
}
