package fencing_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
)

// A refusal tells the current token to whoever may use the schema, and to nobody else: with it
// a role that can only write to the table could stamp.
func TestGuard_tellsTheCurrentTokenToThoseOnlyWhoMayLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.exec(t, `CREATE TABLE orders (id int, tenant text)`)
	require.NoError(t, fencing.GuardBy(t.Context(), b.pool, "orders", "tenant"))
	b.exec(t, `SELECT setval('fencing.token', 4710)`)
	require.NoError(t, b.lock(t, b.fencer, "nightly").Unlock(t.Context()))
	writer, locker := b.role(t), b.role(t)
	b.exec(t, `GRANT INSERT ON exports, orders TO `+writer+`, `+locker+`; SELECT fencing.grant_to('`+locker+`')`)

	refusals := func(role, stamps, sql string) string {
		t.Helper()
		conn := b.db.Conn(t)
		_, err := conn.Exec(t.Context(), `SET ROLE `+role+`; SET fencing.stamps = '`+stamps+`'`)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), sql)
		pgErr, is := errors.AsType[*pgconn.PgError](err)
		require.True(t, is, "%v", err)
		require.Contains(t, []string{"LF001", "LF003"}, pgErr.Code)
		if pgErr.Code == "LF001" {
			var stale *fencing.StaleError
			require.ErrorAs(t, fencing.Translate(err), &stale)
			require.Equal(t, "nightly", stale.Resource)
			require.Equal(t, role == locker, stale.Current == 4711)
			require.NotContains(t, stale.Error(), "promoted")
		}
		require.False(t, role == writer && pgErr.Code != "LF001", "it would tell whether the token is too low or too high")
		return pgErr.Message + pgErr.Detail + pgErr.Hint
	}
	for _, stamps := range []string{`{"nightly":7}`, `{"nightly":99999}`} {
		for _, sql := range []string{`INSERT INTO exports VALUES (3)`, `INSERT INTO orders VALUES (3, 'nightly')`} {
			require.NotContains(t, refusals(writer, stamps, sql), "4711")
			require.Contains(t, refusals(locker, stamps, sql), "4711")
		}
	}
}
