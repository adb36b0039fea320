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
	"functions of the session's own": {
		prepare: []string{`CREATE SCHEMA evil`},
		run: []string{
			`CREATE FUNCTION pg_temp.hashtextextended(text, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'`,
			`CREATE FUNCTION pg_temp.current_setting(text, boolean) RETURNS text LANGUAGE sql AS $$ SELECT '{"nightly": 2}' $$`,
			`CREATE FUNCTION pg_temp.less(bigint, bigint) RETURNS boolean LANGUAGE sql AS 'SELECT false'`,
			`CREATE OPERATOR pg_temp.< (leftarg = bigint, rightarg = bigint, function = pg_temp.less)`,
			`CREATE OPERATOR evil.< (leftarg = bigint, rightarg = bigint, function = pg_temp.less)`,
			`SET LOCAL search_path = pg_temp, evil, pg_catalog, public`, `DELETE FROM exports`,
		},
	},
	"domain and type of the session's own": {
		run: []string{
			`CREATE DOMAIN pg_temp.bigint AS text`, `CREATE DOMAIN pg_temp.jsonb AS text`,
			`SET LOCAL search_path = pg_temp, pg_catalog, public`, `DELETE FROM exports`,
		},
	},
	"trigger of a view": {
		prepare: []string{
			`CREATE VIEW v AS SELECT 1 AS id`,
			`CREATE FUNCTION instead() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO exports VALUES (new.id); RETURN new; END $$`,
			`CREATE TRIGGER instead INSTEAD OF INSERT ON v FOR EACH ROW EXECUTE FUNCTION instead()`,
		},
		run: []string{`INSERT INTO v VALUES (9)`},
	},
	"rule of a view": {
		prepare: []string{`CREATE VIEW v AS SELECT 1 AS id`, `CREATE RULE r AS ON INSERT TO v DO INSTEAD INSERT INTO exports VALUES (new.id)`},
		run:     []string{`INSERT INTO v VALUES (9)`},
	},
	"deferred trigger": {
		prepare: []string{
			parentSQL,
			`CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM exports; RETURN NULL; END $$`,
			`CREATE CONSTRAINT TRIGGER follow AFTER INSERT ON batch DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION follow()`,
		},
		run: []string{`INSERT INTO batch VALUES (9)`},
	},
	"deferred trigger of the table itself": {
		prepare: []string{
			`CREATE FUNCTION follow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF pg_trigger_depth() < 2 THEN DELETE FROM exports; END IF; RETURN NULL; END $$`,
			`CREATE CONSTRAINT TRIGGER follow AFTER INSERT ON exports DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION follow()`,
		},
		run: []string{`INSERT INTO exports VALUES (9)`},
	},
	"locks given back": {
		run: []string{`SELECT pg_advisory_unlock_all()`, `DELETE FROM exports`},
	},
	"cursor": {
		run: []string{
			`DO $$ DECLARE c CURSOR FOR SELECT * FROM exports FOR UPDATE; r record; BEGIN
				OPEN c; FETCH c INTO r; UPDATE exports SET note = 'by cursor' WHERE CURRENT OF c; END $$`,
		},
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

// A trigger that drops the rows comes after the check, or before a check of no
// rows: nothing is written then.
func TestGuard_checksWhatOtherTriggersDrop(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.exec(t, `CREATE TABLE orders (tenant text);
		CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
		CREATE TRIGGER a BEFORE INSERT ON exports FOR EACH STATEMENT EXECUTE FUNCTION nothing();
		CREATE TRIGGER b BEFORE INSERT ON exports FOR EACH ROW EXECUTE FUNCTION nothing();
		CREATE TRIGGER a BEFORE INSERT ON orders FOR EACH STATEMENT EXECUTE FUNCTION nothing();
		CREATE TRIGGER b BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION nothing()`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "orders", "tenant"))
	old, _ := b.superseded(t, "nightly")
	require.ErrorIs(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)), fencing.ErrStale)
	b.exec(t, `INSERT INTO orders VALUES ('a')`)
	require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
	require.Empty(t, b.contents(t, "orders"))
}

// What a holder has written is shared with the next one only when it ends, by
// whatever means it tries to give the locks back.
func TestGuard_holdsTheMarkUntilTheTransactionEnds(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.lock(t, b.fencer, "nightly")
	tx, err := b.pool.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	require.NoError(t, fencing.Stamp(t.Context(), tx, "nightly", 1))
	require.NoError(t, write(t.Context(), "exports", 3)(tx))
	for _, sql := range []string{
		`SELECT pg_advisory_unlock_all()`,
		`SELECT pg_advisory_unlock_shared(hashtextextended('nightly', 1))`,
		`SAVEPOINT s; UPDATE exports SET note = 'x'; ROLLBACK TO s`,
		`DO $$ BEGIN DELETE FROM exports; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END $$`,
	} {
		_, err = tx.Exec(t.Context(), sql)
		require.NoError(t, err)
		require.True(t, one[bool](t, b.observer, `SELECT NOT pg_try_advisory_lock(hashtextextended('nightly', 1))`), sql)
	}
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
		``:                                 "LF002",
		`{}`:                               "LF002",
		`{"nightly": null}`:                "LF002",
		`{"nightly": 0}`:                   "LF001",
		`{"nightly": -2}`:                  "LF001",
		`{"nightly": "1"}`:                 "LF001",
		`{"nightly": 3}`:                   "LF003",
		`{"nightly": 2.5}`:                 "22P02",
		`{"nightly": 1e30}`:                "22003",
		`{"nightly": 9223372036854775808}`: "22003",
		`{"nightly": 2, "nightly": 1}`:     "LF001",
		`{"nightly": [2]}`:                 "22P02",
		`[2]`:                              "LF002",
		`nightly=2`:                        "22P02",
		`{"nightly": 2`:                    "22P02",
		`{"NIGHTLY": 2}`:                   "LF002",
		`{"a": {"nightly": 2}}`:            "LF002",
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
