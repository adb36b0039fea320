package fencing_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The trigger functions run with the rights of the schema's owner. Whatever a
// role makes of its own types and tables, nothing of it is called there.
func TestGuard_callsNothingOfTheWritersWithTheRightsOfTheOwner(t *testing.T) {
	t.Parallel()
	for name, tricks := range map[string][]string{
		"immutable cast in a guarded table": {
			`CREATE FUNCTION evil() RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN mine.spy('cast'); END $$`,
			`CREATE FUNCTION to_text(mood) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT mine.evil()'`,
			`CREATE CAST (mood AS text) WITH FUNCTION to_text(mood)`,
			`CREATE TABLE t (k mood, v int)`,
			`SELECT fencing.guard_by('t', 'k')`,
			`INSERT INTO t VALUES ('a', 1)`,
		},
		"immutable cast, row by row": {
			`CREATE FUNCTION to_text(mood) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN mine.spy('cast'); END $$`,
			`CREATE CAST (mood AS text) WITH FUNCTION to_text(mood)`,
			`CREATE TEMP TABLE t (k mood)`,
			`SELECT fencing.make_checker('k')`,
			`CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION fencing.check_by_8ce4b16b22b58894aa86c421e8759df3('k', '')`,
			`INSERT INTO t VALUES ('a')`,
		},
		"domain of the type": {
			`CREATE FUNCTION to_text(mood) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$ BEGIN RETURN mine.spy('cast'); END $$`,
			`CREATE CAST (mood AS text) WITH FUNCTION to_text(mood)`,
			`CREATE DOMAIN feeling AS mood`,
			`CREATE TABLE t (k feeling)`,
			`SELECT fencing.guard_by('t', 'k')`,
			`INSERT INTO t VALUES ('a')`,
		},
		"another type later, of which there are casts to texts": {
			`CREATE DOMAIN word AS text`,
			`CREATE TABLE t (k text, v int)`,
			`SELECT fencing.guard_by('t', 'k')`,
			`CREATE FUNCTION to_text(word[]) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RETURN mine.spy('cast'); END $$`,
			`CREATE FUNCTION to_texts(word[]) RETURNS text[] LANGUAGE plpgsql AS $$ BEGIN RETURN ARRAY[mine.spy('casts')]; END $$`,
			`CREATE CAST (word[] AS text) WITH FUNCTION to_text(word[]) AS IMPLICIT`,
			`CREATE CAST (word[] AS text[]) WITH FUNCTION to_texts(word[]) AS IMPLICIT`,
			`ALTER TABLE t ALTER k TYPE word[] USING ARRAY[k::word]`,
			`INSERT INTO t VALUES ('{a}', 1), ('{x}', 2), ('{a}', 2)`,
		},
		"function that looks like a column": {
			`CREATE FUNCTION to_j(mood) RETURNS json LANGUAGE plpgsql AS $$ BEGIN PERFORM mine.spy('json'); RETURN '1'; END $$`,
			`CREATE CAST (mood AS json) WITH FUNCTION to_j(mood)`,
			`CREATE TEMP TABLE t (k mood)`,
			`SELECT fencing.make_checker('row_to_json')`,
			`CREATE TRIGGER x AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION fencing.check_by_dfb710b0c64a218018184f3887be240f('row_to_json', '')`,
			`INSERT INTO t VALUES ('a')`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			role := b.role(t)
			b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
			b.exec(t, `CREATE SCHEMA mine AUTHORIZATION `+role)
			b.exec(t, `CREATE TABLE public.called (what text, by_whom name); GRANT INSERT ON public.called TO PUBLIC`)
			pool := b.db.Pool(t, with("role", role), with("search_path", "mine"))
			conn, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			defer conn.Release()
			setUp := append([]string{
				`CREATE TYPE mood AS ENUM ('a', 'b')`,
				`CREATE FUNCTION spy(what text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.called VALUES (what, current_user); RETURN 'x'; END $$`,
			}, tricks[:len(tricks)-1]...)
			for _, sql := range setUp {
				_, err := conn.Exec(t.Context(), sql)
				require.NoError(t, err, sql)
			}
			// With the stamps of all names that could come of it.
			_, err = conn.Exec(t.Context(), `BEGIN; SELECT fencing.stamp(name, 1) FROM unnest(ARRAY['a', 'x']) AS name`)
			require.NoError(t, err)
			_, err = conn.Exec(t.Context(), tricks[len(tricks)-1])
			require.Error(t, err)
			_, err = conn.Exec(t.Context(), `ROLLBACK`)
			require.NoError(t, err)

			// And where the write is let in.
			b.exec(t, `SELECT pg_advisory_lock(hashtextextended(name, 0)), fencing.issue(name) FROM unnest(ARRAY['a', 'x']) AS name`)
			_, _ = conn.Exec(t.Context(), `SELECT set_config('fencing.stamps', (SELECT jsonb_object_agg(name, mark)::text FROM fencing.resource), false)`)
			_, _ = conn.Exec(t.Context(), tricks[len(tricks)-1])
			require.Zero(t, one[int](t, b.observer, `SELECT count(*) FROM called WHERE by_whom <> $1`, role))
		})
	}
}

// A collation in which texts are equal that are not the same makes other numbers
// of them.
func TestIssue_isOfOneResourceWhateverTheCollation(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	role := b.role(t)
	b.exec(t, `SELECT fencing.grant_to($1::text::regrole)`, role)
	lease := b.lock(t, b.fencer, "nightly")
	thief := b.as(t, role)
	conn, err := thief.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), `CREATE COLLATION pg_temp.same (provider = icu, locale = 'und', deterministic = false)`); err != nil {
		t.Logf("a server without ICU: %v", err)
		return
	}
	_, err = conn.Exec(t.Context(), `SELECT fencing.issue('nightly' COLLATE pg_temp.same)`)
	requireCode(t, err, "55006")
	require.Equal(t, lease.Token(), b.mark(t, "nightly"))
}

// Nobody can take the lock between the check that it is free and the commit of
// the mark.
func TestIssue_keepsTheLockUntilItIsCommitted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn := b.db.Conn(t)
	_, err := conn.Exec(t.Context(), `BEGIN; SELECT fencing.issue('nightly')`)
	require.NoError(t, err)
	require.False(t, one[bool](t, b.observer, `SELECT pg_try_advisory_lock(hashtextextended('nightly', 0))`))
	require.Equal(t, "1min", one[string](t, conn, `SELECT current_setting('idle_in_transaction_session_timeout')`))
	_, err = conn.Exec(t.Context(), `COMMIT`)
	require.NoError(t, err)
	require.Equal(t, "0", one[string](t, conn, `SELECT current_setting('idle_in_transaction_session_timeout')`))
	require.True(t, one[bool](t, b.observer, `SELECT pg_try_advisory_lock(hashtextextended('nightly', 0))`))
	b.exec(t, `SELECT pg_advisory_unlock_all()`)
}
