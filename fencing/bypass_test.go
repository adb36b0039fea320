package fencing_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// detours are ways to write to the guarded table exports other than by a
// statement on it.
var detours = map[string]struct {
	prepare []string
	run     []string
}{
	"replica role": {
		run: []string{`SET LOCAL session_replication_role = replica`, `INSERT INTO exports VALUES (3)`},
	},
	"replica role, truncate": {
		run: []string{`SET LOCAL session_replication_role = replica`, `TRUNCATE exports`},
	},
	"view": {
		prepare: []string{`CREATE VIEW newest AS SELECT * FROM exports WHERE id > 0`},
		run:     []string{`UPDATE newest SET note = 'changed'`},
	},
	"view of a view": {
		prepare: []string{`CREATE VIEW v AS SELECT * FROM exports`, `CREATE VIEW w AS SELECT id FROM v`},
		run:     []string{`DELETE FROM w WHERE id = 1`},
	},
	"cascading delete": {
		prepare: []string{parentSQL, foreignKeySQL + ` ON DELETE CASCADE`},
		run:     []string{`DELETE FROM batch WHERE id = 1`},
	},
	"cascading update": {
		prepare: []string{parentSQL, foreignKeySQL + ` ON UPDATE CASCADE`},
		run:     []string{`UPDATE batch SET id = 3 WHERE id = 1`},
	},
	"set null": {
		prepare: []string{parentSQL, `ALTER TABLE exports ADD batch int DEFAULT 1 REFERENCES batch ON DELETE SET NULL`},
		run:     []string{`DELETE FROM batch WHERE id = 1`},
	},
	"cascading truncate": {
		prepare: []string{parentSQL, foreignKeySQL},
		run:     []string{`TRUNCATE batch CASCADE`},
	},
	"trigger of another table": {
		prepare: []string{
			parentSQL,
			`CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM exports; RETURN NEW; END $$`,
			`CREATE TRIGGER follow AFTER INSERT ON batch FOR EACH ROW EXECUTE FUNCTION follow()`,
		},
		run: []string{`INSERT INTO batch VALUES (9)`},
	},
	"rule of another table": {
		prepare: []string{parentSQL, `CREATE RULE follow AS ON INSERT TO batch DO ALSO DELETE FROM exports`},
		run:     []string{`INSERT INTO batch VALUES (9)`},
	},
	"security definer function": {
		prepare: []string{`CREATE FUNCTION work() RETURNS void LANGUAGE sql SECURITY DEFINER AS 'DELETE FROM exports'`},
		run:     []string{`SELECT work()`},
	},
	"writable CTE in a read": {
		run: []string{`WITH gone AS (DELETE FROM exports RETURNING 1) SELECT count(*) FROM gone`},
	},
	"functions that shadow the server's": {
		prepare: []string{
			`CREATE SCHEMA evil`,
			`CREATE FUNCTION evil.current_setting(text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT '{"nightly": 2}' $$`,
		},
		run: []string{`SET LOCAL search_path = evil, pg_catalog, public`, `DELETE FROM exports`},
	},
	"tables that shadow the marks": {
		run: []string{
			`CREATE TEMP TABLE resource ON COMMIT DROP AS SELECT 'nightly'::text AS name, 1::bigint AS mark`,
			`SET LOCAL search_path = pg_temp, fencing, public`, `DELETE FROM exports`,
		},
	},
}

const (
	parentSQL     = `CREATE TABLE batch (id int PRIMARY KEY); INSERT INTO batch VALUES (1), (2)`
	foreignKeySQL = `ALTER TABLE exports ADD FOREIGN KEY (id) REFERENCES batch`
)

func TestGuard_refusesEveryDetour(t *testing.T) {
	t.Parallel()
	for name, d := range detours {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			ctx := t.Context()
			b.guarded(t, "exports", "nightly")
			for _, sql := range d.prepare {
				b.exec(t, sql)
			}
			old, current := b.superseded(t, "nightly")
			before := b.contents(t, "exports")
			run := func(tx pgx.Tx) error {
				for _, sql := range d.run {
					if _, err := tx.Exec(ctx, sql); err != nil {
						return err
					}
				}
				return nil
			}
			require.ErrorIs(t, old.InTx(ctx, b.pool, run), fencing.ErrStale)
			require.ErrorIs(t, fencing.Translate(pgx.BeginFunc(ctx, b.pool, run)), fencing.ErrUnstamped)
			require.Equal(t, before, b.contents(t, "exports"))

			require.NoError(t, current.InTx(ctx, b.pool, run))
			require.NotEqual(t, before, b.contents(t, "exports"))
		})
	}
}

// A block that swallows the refusal has not written either.
func TestGuard_isNotPassedByABlockThatSwallowsTheRefusal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	old, _ := b.superseded(t, "nightly")
	require.NoError(t, old.InTx(t.Context(), b.pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `DO $$ BEGIN DELETE FROM exports; EXCEPTION WHEN OTHERS THEN NULL; END $$`)
		return err
	}))
	require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
}

// Reads, and what a foreign key reads, are nobody's business.
func TestGuard_letsEverybodyRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.exec(t, `CREATE TABLE line (export int REFERENCES exports)`)
	b.exec(t, `INSERT INTO line VALUES (1)`)
	require.NoError(t, pgx.BeginTxFunc(t.Context(), b.pool, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), `SELECT note FROM exports WHERE id = 1`).Scan(new(string))
	}))
	require.NoError(t, pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
		return tx.QueryRow(t.Context(), `SELECT note FROM exports WHERE id = 1 FOR UPDATE`).Scan(new(string))
	}))
}

// Whatever a session puts into the setting that carries the stamps, it is not
// a token of the holder.
func TestGuard_refusesForgedStamps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.superseded(t, "nightly")
	for stamps, code := range map[string]string{
		``:                      "LF002",
		`{}`:                    "LF002",
		`{"nightly": null}`:     "LF002",
		`{"nightly": 0}`:        "LF001",
		`{"nightly": -2}`:       "LF001",
		`{"nightly": "1"}`:      "LF001",
		`{"nightly": 3}`:        "LF003",
		`{"nightly": 2.5}`:      "22P02",
		`{"nightly": 1e30}`:     "22003",
		`{"nightly": [2]}`:      "22P02",
		`[2]`:                   "LF002",
		`nightly=2`:             "22P02",
		`{"nightly": 2`:         "22P02",
		`{"NIGHTLY": 2}`:        "LF002",
		`{"a": {"nightly": 2}}`: "LF002",
	} {
		err := pgx.BeginFunc(t.Context(), b.pool, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), `SELECT set_config('fencing.stamps', $1, true)`, stamps); err != nil {
				return err
			}
			return write(t.Context(), "exports", 3)(tx)
		})
		requireCode(t, err, code)
	}
	require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
}
