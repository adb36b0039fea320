package fencing_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// setupOfCursors has functions that a cursor calls for each row: each writes, or draws
// a token, for the first row and fails for the second.
const setupOfCursors = `CREATE FUNCTION write_once(i int, sql text) RETURNS int LANGUAGE plpgsql AS $$ BEGIN
		IF i > 1 THEN PERFORM 1 / 0; END IF;
		EXECUTE sql;
		RETURN i;
	END $$;
	CREATE TABLE orders (id int, tenant text);
	CREATE TABLE parts (id int, tenant text) PARTITION BY LIST (id);
	CREATE TABLE part PARTITION OF parts DEFAULT;
	CREATE TABLE exports (id int, note text)`

// failingCursors are ways in which a cursor writes and then fails, so that what it has
// written stays. The server gives back the locks that belong to such a cursor.
var failingCursors = map[string][]string{
	"savepoint": {
		`DECLARE c CURSOR FOR SELECT write_once(i, SQL) FROM generate_series(1, 3) i`,
		`FETCH c`, `SAVEPOINT s`, `!FETCH c`, `ROLLBACK TO s`,
	},
	"savepoint, after an ordinary write": {
		`SELECT write_once(1, SQL)`,
		`DECLARE c CURSOR FOR SELECT write_once(i, SQL) FROM generate_series(1, 3) i`,
		`FETCH c`, `SAVEPOINT s`, `!FETCH c`, `ROLLBACK TO s`,
	},
	"block with EXCEPTION": {
		`DO $do$ DECLARE c CURSOR FOR SELECT write_once(i, SQL) FROM generate_series(1, 3) i; n int; BEGIN
			OPEN c; FETCH c INTO n;
			BEGIN FETCH c INTO n; EXCEPTION WHEN division_by_zero THEN NULL; END;
		END $do$`,
	},
	"held cursor": {
		`DECLARE c CURSOR WITH HOLD FOR SELECT write_once(i, SQL) FROM generate_series(1, 3) i`,
		`FETCH c`, `SAVEPOINT s`, `!FETCH c`, `ROLLBACK TO s`,
	},
	"nested savepoints": {
		`DECLARE c CURSOR FOR SELECT write_once(i, SQL) FROM generate_series(1, 3) i`,
		`FETCH c`, `SAVEPOINT a`, `SAVEPOINT b`, `!FETCH c`, `ROLLBACK TO b`, `ROLLBACK TO a`, `RELEASE a`,
	},
}

// runStatements executes statements with sql in them; those that begin with ! have to fail.
func runStatements(t *testing.T, conn *pgx.Conn, statements []string, sql string) {
	t.Helper()
	for _, statement := range statements {
		mustFail := statement[0] == '!'
		if mustFail {
			statement = statement[1:]
		}
		_, err := conn.Exec(t.Context(), strings.Replace(statement, "SQL", "$sql$"+sql+"$sql$", 1))
		if mustFail {
			require.Error(t, err, statement)
		} else {
			require.NoError(t, err, statement)
		}
	}
}

// A write of a cursor keeps the next holder waiting until its transaction ends, also if
// the cursor has failed by then.
func TestGuard_holdsTheLockOfACheckUntilTheEndOfTheTransaction(t *testing.T) {
	t.Parallel()
	guards := map[string]struct{ guard, write string }{
		"statement":      {`SELECT fencing.guard('exports', 'nightly')`, `INSERT INTO exports VALUES (1, 'cursor')`},
		"rows":           {`SELECT fencing.guard_by('orders', 'tenant')`, `INSERT INTO orders VALUES (1, 'nightly')`},
		"several rows":   {`SELECT fencing.guard_by('orders', 'tenant')`, `INSERT INTO orders VALUES (1, 'nightly'), (2, 'other')`},
		"each row":       {`SELECT fencing.guard('parts', 'nightly'); CREATE TABLE later PARTITION OF parts FOR VALUES IN (7)`, `INSERT INTO parts VALUES (7, 'x')`},
		"each row, by":   {`SELECT fencing.guard_by('parts', 'tenant'); CREATE TABLE later PARTITION OF parts FOR VALUES IN (7)`, `INSERT INTO parts VALUES (7, 'nightly')`},
		"moves of a row": {`SELECT fencing.guard_by('parts', 'tenant')`, `UPDATE parts SET id = id + 1`},
	}
	for name, g := range guards {
		for how, statements := range failingCursors {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				b.exec(t, setupOfCursors)
				b.exec(t, `INSERT INTO parts VALUES (1, 'nightly')`)
				b.exec(t, g.guard)
				old, other := b.lock(t, b.fencer, "nightly"), b.lock(t, b.fencer, "other")
				require.NoError(t, old.Unlock(t.Context()))
				for _, level := range levels {
					conn := b.db.Conn(t)
					_, err := conn.Exec(t.Context(), fmt.Sprintf(`BEGIN ISOLATION LEVEL %s; SELECT fencing.stamp('nightly', %d), fencing.stamp('other', %d)`,
						level, b.mark(t, "nightly"), other.Token()))
					require.NoError(t, err)
					runStatements(t, conn, statements, g.write)
					pid := int64(conn.PgConn().PID())
					require.Equal(t, -pid, one[int64](t, b.observer, `SELECT fencing.issue('nightly')`), "%s: nobody else gets a token", level)
					_, err = conn.Exec(t.Context(), `COMMIT`)
					require.NoError(t, err)
					require.Positive(t, one[int64](t, b.observer, `SELECT fencing.issue('nightly')`))
				}
			})
		}
	}
}

// So does a token that a cursor has drawn, for the writers of the resource and for whoever
// draws the next one.
func TestIssue_holdsItsLocksUntilTheEndOfTheTransaction(t *testing.T) {
	t.Parallel()
	for how, statements := range failingCursors {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			b.exec(t, setupOfCursors)
			require.NoError(t, fencing.Guard(t.Context(), b.pool, "exports", "nightly"))
			old := b.lock(t, b.fencer, "nightly")
			require.NoError(t, old.Unlock(t.Context()))
			conn := b.db.Conn(t)
			_, err := conn.Exec(t.Context(), `BEGIN`)
			require.NoError(t, err)
			runStatements(t, conn, statements, `SELECT fencing.issue('nightly')`)

			_, err = b.observer.Exec(t.Context(), `SELECT fencing.issue('nightly')`)
			requireCode(t, err, "55006")
			err = pgx.BeginFunc(t.Context(), b.observer, func(tx pgx.Tx) error {
				require.NoError(t, old.Stamp(t.Context(), tx))
				_, err := tx.Exec(t.Context(), `SET LOCAL lock_timeout = '50ms'`)
				require.NoError(t, err)
				return write(t.Context(), "exports", 3)(tx)
			})
			requireCode(t, err, "55P03")
			_, err = conn.Exec(t.Context(), `COMMIT`)
			require.NoError(t, err)
			require.ErrorIs(t, old.InTx(t.Context(), b.pool, write(t.Context(), "exports", 3)), fencing.ErrStale)
		})
	}
}
