package migrations_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// Case 47: a pooler that keeps no session keeps no lock.
func TestUp_refusesAPooler(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"transaction", "session"} {
		db := pgtest.New(t)
		require.NoError(t, migrations.Down(t.Context(), db.Pool(t)))
		pooled := *db
		pooled.DSN = db.PgBouncer(t, mode)
		require.ErrorIs(t, migrations.Up(t.Context(), pooled.Pool(t)), advisory.ErrPooler, mode)
		version, err := migrations.Version(t.Context(), db.Pool(t))
		require.NoError(t, err)
		require.Zero(t, version)
		var locks int
		require.NoError(t, db.Conn(t).QueryRow(t.Context(), "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' "+
			"AND database = (SELECT oid FROM pg_database WHERE datname = current_database())").Scan(&locks))
		require.Zero(t, locks)
	}
}
