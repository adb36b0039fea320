package fencing_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// withheld are ways in which a managed service keeps functions from its users. The catalogs
// are the database's own.
var withheld = map[string]string{
	"renamed":       `ALTER FUNCTION %[1]s(%[2]s) RENAME TO %[1]s_withheld -- %[3]s`,
	"not supported": replaceSQL + `RAISE EXCEPTION 'not supported' USING ERRCODE = '0A000'; END $f$`,
	"prerequisite":  replaceSQL + `RAISE EXCEPTION 'wal_level must be set to ''logical''' USING ERRCODE = '55000'; END $f$`,
	"no privilege":  `REVOKE EXECUTE ON FUNCTION %[1]s(%[2]s) FROM PUBLIC -- %[3]s`,
}

const replaceSQL = `ALTER FUNCTION %[1]s(%[2]s) RENAME TO %[1]s_withheld;
	CREATE FUNCTION pg_catalog.%[1]s(%[3]s LANGUAGE plpgsql AS $f$ BEGIN `

// withhold takes away what tells of the log, of the control file and of subscriptions.
func withhold(t *testing.T, b *bundle, how string) {
	t.Helper()
	b.exec(t, `SET allow_system_table_mods = on`)
	for _, f := range [][3]string{
		{"pg_walfile_name", "pg_lsn", "pg_lsn) RETURNS text"},
		{"pg_current_wal_insert_lsn", "", ") RETURNS pg_lsn"},
		{"pg_current_wal_lsn", "", ") RETURNS pg_lsn"},
		{"pg_current_wal_flush_lsn", "", ") RETURNS pg_lsn"},
		{"pg_control_system", "", "OUT system_identifier bigint, OUT x int)"},
		{"pg_control_checkpoint", "", "OUT timeline_id int, OUT x int)"},
		{"pg_stat_get_subscription", "oid", "oid, OUT pid int, OUT x int) RETURNS SETOF record"},
	} {
		b.exec(t, fmt.Sprintf(withheld[how], f[0], f[1], f[2]))
	}
}

// The whole path works on a server that tells neither its timeline nor who it is, be it from the
// start or since an upgrade of the service. The report says what is weaker.
func TestManaged_worksWithoutTheFunctionsOfTheServer(t *testing.T) {
	t.Parallel()
	for how := range withheld {
		for _, when := range []string{"before", "after"} {
			t.Run(how+", "+when, func(t *testing.T) {
				t.Parallel()
				b := setup(t)
				require.NoError(t, migrations.Down(t.Context(), b.pool))
				// No privilege is withheld from a superuser, who is not to be had there.
				owner := b.role(t)
				b.exec(t, fmt.Sprintf(`GRANT CREATE ON DATABASE %s TO %s; GRANT ALL ON SCHEMA public TO %[2]s`, b.db.Name, owner))
				if when == "before" {
					withhold(t, b, how)
				}
				pool := b.as(t, owner)
				require.NoError(t, migrations.Up(t.Context(), pool))
				before := one[fencing.Token](t, pool, `SELECT fencing.issue('nightly')`)
				pool.Reset() // a session may still know what is withheld now
				if when == "after" {
					withhold(t, b, how)
				}
				require.Equal(t, "constant", one[string](t, pool, `SELECT fencing.epoch_source()`))
				requirePath(t, b, owner, before)
				if when == "after" {
					requireFound(t, pool, "", []string{"the epoch has another source than at the installation"})
					require.Equal(t, "constant", one[string](t, pool, `SELECT fencing.choose_epoch_source()`))
				}
				requirePath(t, b, owner, before)
				report, err := fencing.Verify(t.Context(), pool)
				require.NoError(t, err)
				require.True(t, report.OK(), "%+v", report)
				require.Len(t, report.Notes, 1)
				require.Contains(t, report.Notes[0], "a promotion alone makes no token stale")
			})
		}
	}
}

// requirePath locks, stamps, writes, takes over and refuses.
func requirePath(t *testing.T, b *bundle, owner string, before fencing.Token) {
	t.Helper()
	pool := b.as(t, owner)
	fencer, next := newFencer(t, pool, nil, nil), newFencer(t, b.as(t, owner), nil, nil)
	_, err := pool.Exec(t.Context(), `DROP TABLE IF EXISTS exports, orders; CREATE TABLE exports (id int, tenant text); CREATE TABLE orders (id int, tenant text)`)
	require.NoError(t, err)
	require.NoError(t, fencing.Guard(t.Context(), pool, "exports", "nightly"))
	require.NoError(t, fencing.GuardBy(t.Context(), pool, "orders", "tenant"))
	writeBoth := func(lease *fencing.Lease, level pgx.TxIsoLevel) error {
		return fencing.Translate(pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level}, func(tx pgx.Tx) error {
			if err := lease.Stamp(t.Context(), tx); err != nil {
				return err
			}
			_, err := tx.Exec(t.Context(), `INSERT INTO exports VALUES (1, 'nightly'); INSERT INTO orders VALUES (1, 'nightly')`)
			return err
		}))
	}
	old := b.lock(t, fencer, "nightly")
	require.Greater(t, old.Token(), before)
	for _, level := range levels {
		require.NoError(t, writeBoth(old, level))
	}
	b.terminate(t, old)
	current := b.lock(t, next, "nightly")
	require.Greater(t, current.Token(), old.Token())
	for _, level := range levels {
		require.ErrorIs(t, writeBoth(old, level), fencing.ErrStale)
		require.NoError(t, writeBoth(current, level))
	}
	for _, sql := range []string{`INSERT INTO exports VALUES (2)`, `INSERT INTO orders VALUES (2, 'nightly')`, `TRUNCATE orders`} {
		_, err := pool.Exec(t.Context(), sql)
		require.ErrorIs(t, fencing.Translate(err), fencing.ErrUnstamped)
	}
	require.Equal(t, 6, one[int](t, pool, `SELECT count(*) FROM exports`))
	require.NoError(t, current.Unlock(t.Context()))
}
