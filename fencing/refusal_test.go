package fencing_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// statements are the ways to change a table that guarded made.
var statements = []struct {
	name  string
	since int // the first server_version_num that has it
	run   func(ctx context.Context, tx pgx.Tx, table string) error
}{
	{"UPDATE", 0, statement(`UPDATE %s SET note = 'changed' WHERE id = 1`)},
	{"DELETE", 0, statement(`DELETE FROM %s WHERE id = 2`)},
	{"INSERT", 0, statement(`INSERT INTO %s VALUES (3, 'three')`)},
	{"TRUNCATE", 0, statement(`TRUNCATE %s`)},
	{"COPY FROM", 0, func(ctx context.Context, tx pgx.Tx, table string) error {
		_, err := tx.CopyFrom(ctx, pgx.Identifier{table}, []string{"id", "note"}, pgx.CopyFromRows([][]any{{3, "three"}, {4, "four"}}))
		return err
	}},
	{"MERGE", 150000, statement(`MERGE INTO %s AS x USING (VALUES (1), (3)) AS s (id) ON x.id = s.id
		WHEN MATCHED THEN UPDATE SET note = 'merged' WHEN NOT MATCHED THEN INSERT VALUES (s.id, 'merged')`)},
	{"MERGE that deletes", 150000, statement(`MERGE INTO %s AS x USING (VALUES (1)) AS s (id) ON x.id = s.id
		WHEN MATCHED THEN DELETE`)},
	{"INSERT ON CONFLICT DO UPDATE", 0, statement(`INSERT INTO %s VALUES (1, 'again')
		ON CONFLICT (id) DO UPDATE SET note = excluded.note`)},
	{"writable CTE", 0, statement(`WITH gone AS (DELETE FROM %s WHERE id = 1 RETURNING id) SELECT count(*) FROM gone`)},
}

func statement(format string) func(context.Context, pgx.Tx, string) error {
	return func(ctx context.Context, tx pgx.Tx, table string) error {
		_, err := tx.Exec(ctx, fmt.Sprintf(format, table))
		return err
	}
}

func TestGuard_refusesEveryWriteButTheCurrentHolders(t *testing.T) {
	t.Parallel()
	for _, s := range statements {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			if b.db.Server.Version() < s.since {
				t.Skipf("not applicable: the server is older than %d", s.since/10000)
			}
			ctx := t.Context()
			b.guarded(t, "exports", "nightly")
			old, current := b.superseded(t, "nightly")
			before := b.contents(t, "exports")
			run := func(tx pgx.Tx) error { return s.run(ctx, tx, "exports") }
			stampedWith := func(token fencing.Token) error {
				return fencing.Translate(pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
					if err := fencing.Stamp(ctx, tx, "nightly", token); err != nil {
						return err
					}
					return run(tx)
				}))
			}

			for _, refusal := range []struct {
				by       string
				err      error
				sentinel error
				code     string
			}{
				{"the old holder", old.InTx(ctx, b.pool, run), fencing.ErrStale, "LF001"},
				{"the old holder's token", stampedWith(old.Token()), fencing.ErrStale, "LF001"},
				{"nobody", fencing.Translate(pgx.BeginFunc(ctx, b.pool, run)), fencing.ErrUnstamped, "LF002"},
				{"an invented token", stampedWith(current.Token() + 1_000_000), fencing.ErrUnknownToken, "LF003"},
				{"the next token", stampedWith(current.Token() + 1), fencing.ErrUnknownToken, "LF003"},
			} {
				require.ErrorIs(t, refusal.err, refusal.sentinel, refusal.by)
				requireCode(t, refusal.err, refusal.code)
				requireIsOnly(t, refusal.err, refusal.sentinel)
				require.Equal(t, before, b.contents(t, "exports"), refusal.by)
			}

			require.NoError(t, current.InTx(ctx, b.pool, run))
			require.NotEqual(t, before, b.contents(t, "exports"))
		})
	}
}

func TestGuard_refusesAStatementThatMatchesNoRow(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	old, _ := b.superseded(t, "nightly")
	err := old.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		return statement(`UPDATE %s SET note = 'changed' WHERE false`)(t.Context(), tx, "exports")
	})
	require.ErrorIs(t, err, fencing.ErrStale)
}

// A resource that nobody has locked yet has no mark, and so no token.
func TestGuard_refusesAnyTokenBeforeTheFirstLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	err := fencing.Translate(pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		if err := fencing.Stamp(t.Context(), tx, "nightly", 1); err != nil {
			return err
		}
		return write(t.Context(), "exports", 3)(tx)
	}))
	require.ErrorIs(t, err, fencing.ErrUnknownToken)
}

func TestGuard_refusesAStampForAnotherResource(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.lock(t, b.fencer, "nightly")
	other := b.lock(t, b.fencer, "hourly")
	require.ErrorIs(t, other.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)), fencing.ErrUnstamped)
	require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
}

// A fn that goes on after a refusal can't commit either.
func TestInTx_failsWhenTheRefusalIsSwallowed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.exec(t, `CREATE TABLE log (line text)`)
	old, _ := b.superseded(t, "nightly")
	err := old.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(t.Context(), `INSERT INTO log VALUES ('begun')`); err != nil {
			return err
		}
		_ = write(t.Context(), "exports", 3)(tx)
		return nil
	})
	require.ErrorIs(t, err, pgx.ErrTxCommitRollback)
	require.Empty(t, b.contents(t, "log"))
}
