package fencing_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// A token that was drawn and rolled back is not drawn again, also where the marks are far above
// the sequence: whoever saw it could write with it.
func TestIssue_doesNotDrawAgainWhatWasRolledBack(t *testing.T) {
	t.Parallel()
	for name, setup := range map[string]string{
		"fresh":          `SELECT 1`,
		"after a rebase": `SELECT fencing.rebase()`,
		"sequence back":  `SELECT fencing.issue('nightly') FROM generate_series(1, 9); SELECT setval('fencing.token', 1)`,
	} {
		b := newBundleWithExports(t)
		b.exec(t, setup)
		b.exec(t, `SELECT fencing.issue('nightly')`)
		tx, err := b.pool.Begin(t.Context())
		require.NoError(t, err)
		seen := one[fencing.Token](t, tx, `SELECT fencing.issue('nightly')`)
		require.NoError(t, tx.Rollback(t.Context()))
		next := one[fencing.Token](t, b.observer, `SELECT fencing.issue('nightly')`)
		require.NotEqual(t, seen, next, name)
		err = pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			require.NoError(t, fencing.Stamp(t.Context(), tx, "nightly", seen))
			return write(t.Context(), "exports", 3)(tx)
		})
		require.Error(t, err, name)
	}
}

func newBundleWithExports(t *testing.T) *bundle {
	t.Helper()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	return b
}

// A resource that was known and has lost its mark gets one row again, also from a snapshot that
// does not see the other.
func TestIssue_ofAResourceThatLostItsMarkInAnOlderSnapshot(t *testing.T) {
	t.Parallel()
	b := newBundleWithExports(t)
	b.exec(t, `SELECT fencing.issue('nightly')`)
	b.exec(t, `DELETE FROM fencing.resource`)
	tx, err := b.db.Conn(t).BeginTx(t.Context(), pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	require.Equal(t, 1, one[int](t, tx, `SELECT 1`))
	require.Positive(t, one[int64](t, b.observer, `SELECT fencing.issue('nightly')`))
	_, err = tx.Exec(t.Context(), `SELECT fencing.issue('nightly')`)
	requireCode(t, err, "40001")
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, 1, one[int](t, b.observer, `SELECT count(*) FROM fencing.resource`))
}

// How a session reads strings does not matter, nor that it changes that later.
func TestIssue_whereStringsHaveEscapes(t *testing.T) {
	t.Parallel()
	b := newBundleWithExports(t)
	conn := b.db.Conn(t)
	for _, setting := range []string{"off", "on", "off"} {
		_, err := conn.Exec(t.Context(), `SET standard_conforming_strings = `+setting)
		require.NoError(t, err)
		results, err := conn.PgConn().Exec(t.Context(), `SELECT fencing.issue('nightly')`).ReadAll()
		require.NoError(t, err, setting)
		token := string(results[0].Rows[0][0])
		_, err = conn.PgConn().Exec(t.Context(), `BEGIN; SELECT fencing.stamp('nightly', `+token+`); UPDATE exports SET note = 'x'; COMMIT`).ReadAll()
		require.NoError(t, err, setting)
	}
}

// Rows of a table that inherits from the marks are no marks.
func TestGuard_takesNoChildOfTheMarksForMarks(t *testing.T) {
	t.Parallel()
	b := newBundleWithExports(t)
	b.exec(t, `CREATE TABLE marks () INHERITS (fencing.resource); INSERT INTO marks VALUES ('nightly', 7, now(), fencing.epoch())`)
	for _, level := range levels {
		err := pgx.BeginTxFunc(t.Context(), b.pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			require.NoError(t, fencing.Stamp(t.Context(), tx, "nightly", 7))
			return write(t.Context(), "exports", 3)(tx)
		})
		requireCode(t, err, "LF003")
	}
	require.Equal(t, 1, one[int](t, b.observer, `SELECT fencing.issue('nightly')`))
}

// Stamps that were set by hand, twice for one resource: the row says what was checked.
func TestGuardBy_stampsRowsWithTheTokenThatWasChecked(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE orders (tenant text, fencing_token bigint)`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "orders", "tenant"))
	b.exec(t, `SELECT fencing.issue('a')`)
	for _, level := range levels {
		for _, stamps := range []string{"{\n\"a\":999,\n\"a\":1}", "{\n\"a\":1,\n\"a\":999}", `{"a":999,"a":1}`, `{"a":1,"a":999}`, "{\"a\":999,\n\"a\":1}", "{\n\"a\":1,\"a\":999}"} {
			_ = pgx.BeginTxFunc(t.Context(), b.pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `SELECT set_config('fencing.stamps', $1, true)`, stamps)
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), `INSERT INTO orders VALUES ('a')`)
				return err // refused or not
			})
		}
	}
	require.Zero(t, one[int](t, b.observer, `SELECT count(*) FROM orders WHERE fencing_token <> 1`))
	require.Positive(t, one[int](t, b.observer, `SELECT count(*) FROM orders`))
}
