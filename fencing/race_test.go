package fencing_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// controls are triggers that look at the mark in a weaker way than the guard
// does. They show that the races below are there to be lost.
var controls = map[string]string{"plain read": ``}

const controlSQL = `CREATE FUNCTION control() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
	mark bigint;
BEGIN
	SELECT r.mark INTO mark FROM fencing.resource r WHERE r.name = 'nightly' %s;
	IF (current_setting('fencing.stamps')::jsonb ->> 'nightly')::bigint < mark THEN
		RAISE 'stale' USING ERRCODE = 'LF001';
	END IF;
	RETURN NULL;
END $$;
CREATE TABLE exports (id int PRIMARY KEY, note text);
CREATE TRIGGER control BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE ON exports FOR EACH STATEMENT EXECUTE FUNCTION control()`

// race is a holder whose transaction is open when the next holder comes.
type race struct {
	*bundle
	writer, next *pgx.Conn
	old          fencing.Token
}

func newRace(t *testing.T, control string) *race {
	t.Helper()
	b := setup(t)
	if lock, is := controls[control]; is {
		b.exec(t, fmt.Sprintf(controlSQL, lock))
	} else {
		b.exec(t, `CREATE TABLE exports (id int PRIMARY KEY, note text)`)
		require.NoError(t, fencing.Guard(t.Context(), b.pool, "exports", "nightly"))
	}
	r := &race{bundle: b, writer: b.db.Conn(t), next: b.db.Conn(t)}
	_, err := r.next.Exec(t.Context(), `SELECT pg_advisory_lock(hashtextextended('nightly', 0))`)
	require.NoError(t, err)
	r.old = r.issue(t)
	return r
}

// issue is what the next holder does, who has the lock already.
func (r *race) issue(t *testing.T) fencing.Token {
	t.Helper()
	return one[fencing.Token](t, r.next, `SELECT fencing.issue('nightly')`)
}

// begin takes the snapshot of the old holder's transaction.
func (r *race) begin(t *testing.T, level pgx.TxIsoLevel) {
	t.Helper()
	_, err := r.writer.Exec(t.Context(), fmt.Sprintf(`BEGIN ISOLATION LEVEL %s; SELECT fencing.stamp('nightly', %d)`, level, r.old))
	require.NoError(t, err)
}

func (r *race) insert(t *testing.T, id int) error {
	t.Helper()
	_, err := r.writer.Exec(t.Context(), fmt.Sprintf(`INSERT INTO exports VALUES (%d, 'old')`, id))
	return err
}

// nextWrites is a transaction of the next holder.
func (r *race) nextWrites(t *testing.T, token fencing.Token, id int) {
	t.Helper()
	_, err := r.next.Exec(t.Context(), fmt.Sprintf(`BEGIN; SELECT fencing.stamp('nightly', %d); INSERT INTO exports VALUES (%d, 'next'); COMMIT`, token, id))
	require.NoError(t, err)
}

// The old holder has written, and its transaction is open.
func TestIssue_waitsForWhatIsWritten(t *testing.T) {
	t.Parallel()
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			r := newRace(t, "guard")
			r.begin(t, level)
			require.NoError(t, r.insert(t, 1))
			require.Equal(t, -fencing.Token(r.writer.PgConn().PID()), r.issue(t))
			require.Equal(t, r.old, r.mark(t, "nightly"))
			require.NoError(t, r.insert(t, 2))
			_, err := r.writer.Exec(t.Context(), `COMMIT`)
			require.NoError(t, err)
			token := r.issue(t)
			require.Greater(t, token, r.old)
			r.nextWrites(t, token, 3)
			require.Equal(t, "(1,old) (2,old) (3,next)", r.contents(t, "exports"))
		})
		for control := range controls {
			t.Run(string(level)+", control: "+control, func(t *testing.T) {
				t.Parallel()
				r := newRace(t, control)
				r.begin(t, level)
				require.NoError(t, r.insert(t, 1))
				// Nobody waits, and what is stale commits after what is new.
				token := r.issue(t)
				require.Greater(t, token, r.old)
				r.nextWrites(t, token, 3)
				require.Equal(t, "(3,next)", r.contents(t, "exports"))
				_, err := r.writer.Exec(t.Context(), `COMMIT`)
				require.NoError(t, err)
				require.Equal(t, "(1,old) (3,next)", r.contents(t, "exports"))
			})
		}
	}
}

// The old holder's transaction has its snapshot, and writes after the next
// holder's commit.
func TestIssue_isSeenByWhoeverHasAnOlderSnapshot(t *testing.T) {
	t.Parallel()
	codes := map[pgx.TxIsoLevel]string{pgx.ReadCommitted: "LF001", pgx.RepeatableRead: "40001", pgx.Serializable: "40001"}
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			r := newRace(t, "guard")
			r.begin(t, level)
			r.nextWrites(t, r.issue(t), 3)
			requireCode(t, r.insert(t, 1), codes[level])
			_, err := r.writer.Exec(t.Context(), `ROLLBACK`)
			require.NoError(t, err)
			require.Equal(t, "(3,next)", r.contents(t, "exports"))
		})
		for control := range controls {
			t.Run(string(level)+", control: "+control, func(t *testing.T) {
				t.Parallel()
				r := newRace(t, control)
				r.begin(t, level)
				r.nextWrites(t, r.issue(t), 3)
				if level == pgx.ReadCommitted {
					requireCode(t, r.insert(t, 1), "LF001")
					return
				}
				require.NoError(t, r.insert(t, 1))
				_, err := r.writer.Exec(t.Context(), `COMMIT`)
				require.NoError(t, err)
				require.Equal(t, "(1,old) (3,next)", r.contents(t, "exports"), "the stale row is there")
			})
		}
	}
}
