package fencing_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// A trigger of the application that moves rows between partitions, or gives them
// to another resource, leaves nothing unchecked, by MERGE as well.
func TestGuardBy_checksWhatOtherTriggersMakeOfRowsThatMove(t *testing.T) {
	t.Parallel()
	b := setup(t)
	if b.db.Server.Version() < 150000 {
		t.Log("there is no MERGE")
		return
	}
	b.exec(t, `CREATE FUNCTION move() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF new.v = 99 THEN new.region := 'b'; END IF;
			IF new.v = 98 THEN new.tenant := 'victim'; END IF;
			RETURN new;
		END $$;
		CREATE TABLE p (id int, region text, tenant text, v int) PARTITION BY LIST (region);
		CREATE TABLE p_a PARTITION OF p FOR VALUES IN ('a');
		CREATE TABLE p_b PARTITION OF p FOR VALUES IN ('b');
		INSERT INTO p VALUES (1, 'a', 't1', 1)`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "p", "tenant"))
	b.exec(t, `CREATE TRIGGER zzz BEFORE UPDATE ON p FOR EACH ROW EXECUTE FUNCTION move()`)
	requireFound(t, b.observer, "public.p", []string{
		"trigger fencing_guard_row of public.p_a is disabled", "trigger fencing_guard_row of public.p_b is disabled",
	})
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "p", "tenant"))
	requireProblems(t, b)

	lease := b.lock(t, b.fencer, "t1")
	merge := func(set string) error {
		return lease.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
			_, err := tx.Exec(t.Context(), `MERGE INTO p USING (VALUES (1)) s (id) ON p.id = s.id WHEN MATCHED THEN UPDATE SET `+set)
			return err
		})
	}
	require.ErrorIs(t, merge(`v = 98`), fencing.ErrUnstamped)
	require.ErrorIs(t, merge(`v = 98, region = 'b'`), fencing.ErrUnstamped)
	_, err := b.pool.Exec(t.Context(), `MERGE INTO p USING (VALUES (1)) s (id) ON p.id = s.id WHEN MATCHED THEN UPDATE SET v = 99`)
	requireCode(t, err, "LF002")
	require.Equal(t, "(1,a,t1,1)", b.contents(t, "p"))
	require.NoError(t, merge(`v = 99`))
	require.Equal(t, "(1,b,t1,99)", b.contents(t, "p_b"))
}

func TestVerify_findsATableInThePlaceOfAGuardedOne(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.guarded(t, "reports", "hourly")
	b.guarded(t, "gone", "hourly")
	b.exec(t, `DROP TABLE gone; DROP TABLE exports; CREATE TABLE exports (id int);
		ALTER TABLE reports RENAME TO reports_old; CREATE TABLE reports (id int)`)
	const what = "is another table than the one that was guarded under this name"
	requireFound(t, b.observer, "public.exports", []string{what})
	requireFound(t, b.observer, "public.reports", []string{what})
	for _, table := range []string{"public.exports", "public.reports"} {
		for _, p := range problems(t, b.observer, table) {
			b.exec(t, p.Fix)
		}
	}
	const gone = "was guarded under this name and is no more: "
	requireFound(t, b.observer, "public.gone", []string{gone})
	b.exec(t, `DELETE FROM fencing.guarded WHERE name = 'public.gone'`)
	requireProblems(t, b)
}

func TestVerify_findsAColumnThatCantNameResourcesAnyMore(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE orders (tenant text)`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "orders", "tenant"))
	b.exec(t, `ALTER TABLE orders ALTER tenant TYPE timestamptz USING tenant::timestamptz`)
	requireFound(t, b.observer, "public.orders", []string{"public.orders can't be guarded by its column tenant: its type is timestamp with time zone"})
}

// Settings of the session that change how the server writes SQL.
func TestVerify_isTheSameUnderEverySetting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	pool := b.db.Pool(t, with("quote_all_identifiers", "on"), with("standard_conforming_strings", "off"))
	b.exec(t, `CREATE TABLE "Orders" (tenant text, fencing_token bigint)`)
	require.NoError(t, fencing.GuardBy(t.Context(), pool, `"Orders"`, "tenant"))
	for _, db := range []fencing.Querier{pool, b.pool} {
		report, err := fencing.Verify(t.Context(), db)
		require.NoError(t, err)
		require.True(t, report.OK(), "%+v", report)
	}
}

// The snapshot of the transaction is older than the resource's first mark.
func TestStamp_withTheFirstTokenOfANewerResourceFailsToSerialize(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.guarded(t, "exports", "nightly")
			tx, err := b.pool.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: level})
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
			require.Equal(t, 1, one[int](t, tx, `SELECT 1`))
			lease := b.lock(t, b.fencer, "nightly")
			require.NoError(t, lease.Stamp(t.Context(), tx))
			requireCode(t, write(t.Context(), "exports", 3)(tx), "40001")
		})
	}
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	err := pgx.BeginTxFunc(t.Context(), b.pool, pgx.TxOptions{IsoLevel: pgx.RepeatableRead}, func(tx pgx.Tx) error {
		require.NoError(t, fencing.Stamp(t.Context(), tx, "nightly", 7))
		return write(t.Context(), "exports", 3)(tx)
	})
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnknownToken)
	require.Zero(t, b.mark(t, "nightly"))
}

func TestLock_refusesResourcesOfTooLongANameForTheDatabase(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.fencer.TryLock(t.Context(), strings.Repeat("n", 2001))
	requireCode(t, err, "22001")
	b.waitForNoLock(t)
	lease, err := b.fencer.TryLock(t.Context(), strings.Repeat("é", 1000))
	require.NoError(t, err)
	require.NoError(t, lease.Unlock(t.Context()))
}

func TestGrantTo_andRevokeFromAreTheOwners(t *testing.T) {
	t.Parallel()
	b := setup(t)
	role, other := b.role(t), b.role(t)
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	for _, fn := range []string{"grant_to", "revoke_from"} {
		for _, of := range []string{role, other} {
			_, err := b.as(t, role).Exec(t.Context(), fmt.Sprintf(`SELECT fencing.%s($1::text::regrole)`, fn), of)
			requireCode(t, err, "42501")
			require.ErrorContains(t, err, "must be owner of schema fencing")
		}
		_, err := b.observer.Exec(t.Context(), fmt.Sprintf(`SELECT fencing.%s(0::regrole)`, fn))
		requireCode(t, err, "42704")
	}
}

// A session whose encoding is not UTF-8 reads parameters in another way.
func TestLock_isOfOneResourceWhateverTheEncoding(t *testing.T) {
	t.Parallel()
	b := setup(t)
	latin := b.another(t, with("client_encoding", "LATIN1"))
	first, err := latin.TryLock(t.Context(), "é")
	require.NoError(t, err)
	result := lockInBackground(t.Context(), b.another(t, with("client_encoding", "LATIN1")), "é")
	b.waitFor(t, "it waits", `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted)`)
	require.NoError(t, first.Unlock(t.Context()))
	second := receive(t, result)
	require.NoError(t, second.err)
	third := b.lockAfter(t, second.lease, "é")
	require.Greater(t, third.Token(), second.lease.Token())
	require.Equal(t, third.Token(), b.mark(t, "é"))
	require.Equal(t, 1, one[int](t, b.observer, `SELECT count(*) FROM fencing.resource`))
}

// lockAfter unlocks a lease and takes the lock anew.
func (b *bundle) lockAfter(t *testing.T, lease *fencing.Lease, resource string) *fencing.Lease {
	t.Helper()
	require.NoError(t, lease.Unlock(t.Context()))
	return b.lock(t, b.fencer, resource)
}
