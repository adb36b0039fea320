package tooltest_test

import (
	"database/sql"
	"testing"

	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// A program that writes by way of database/sql and lib/pq.
func TestLibPQ_refusalsAreTranslated(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	b := &bundle{db: db, pool: db.Pool(t), observer: db.Conn(t)}
	b.exec(t, `CREATE TABLE exports (id int)`)
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "exports", "nightly"))
	locker, err := advisory.New(b.pool, nil)
	require.NoError(t, err)
	fencer, err := fencing.New(locker, nil)
	require.NoError(t, err)
	var tokens []fencing.Token
	for range 2 {
		lease, err := fencer.Lock(t.Context(), "nightly")
		require.NoError(t, err)
		tokens = append(tokens, lease.Token())
		require.NoError(t, lease.Unlock(t.Context()))
	}
	require.NoError(t, locker.Close(t.Context()))

	conn, err := sql.Open("postgres", db.DSN)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	write := func(token fencing.Token) error {
		tx, err := conn.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }()
		if token != 0 {
			_, err = tx.ExecContext(t.Context(), "SELECT fencing.stamp('nightly', $1)", int64(token))
			require.NoError(t, err)
		}
		_, err = tx.ExecContext(t.Context(), "INSERT INTO exports VALUES (1)")
		return fencing.Translate(err)
	}
	require.NoError(t, write(tokens[1]))
	require.ErrorIs(t, write(0), fencing.ErrUnstamped)
	require.ErrorIs(t, write(tokens[1]+1), fencing.ErrUnknownToken)
	var stale *fencing.StaleError
	require.ErrorAs(t, write(tokens[0]), &stale)
	require.Equal(t, "public.exports", stale.Table)
	require.Equal(t, "nightly", stale.Resource)
	require.Equal(t, []fencing.Token{stale.Token, stale.Current}, tokens)

	require.NoError(t, fencing.Unguard(t.Context(), b.pool, "exports"))
	b.exec(t, "DROP SCHEMA fencing CASCADE")
	_, err = conn.ExecContext(t.Context(), "SELECT fencing.stamp('nightly', 1)")
	require.ErrorIs(t, fencing.Translate(err), fencing.ErrNotInstalled)
}
