package advisory_test

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgscript"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Case 119: a lock on a standby excludes nobody on the primary.
func TestLocker_refusesAStandbyUntilItIsPromoted(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	b := setupOn(t, pair.Standby, nil)
	b.refuses(t, advisory.ErrStandby, "target_session_attrs=read-write")

	require.NoError(t, pair.Primary.Server.Close())
	pair.Promote(t)
	for _, m := range locking {
		lock, err := m.call(t.Context(), b.locker)
		require.NoError(t, err, "%s: on the same pool", m.name)
		require.NoError(t, lock.Unlock(t.Context()), m.name)
	}
	b.leakCheck(t)
}

// A connection that a pool kept since before the promotion may not have heard
// of it.
func TestLocker_useOfAnIdleConnectionOfAPromotedServer(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	b := setupOn(t, pair.Standby, nil)
	require.NoError(t, b.pool.Ping(t.Context()))
	pair.Promote(t)
	_, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
}

// hosts is the DSN of several servers with one password.
func hosts(t *testing.T, query string, dbs ...*pgtest.Database) string {
	t.Helper()
	all, err := url.Parse(dbs[0].DSN)
	require.NoError(t, err)
	for _, db := range dbs[1:] {
		u, err := url.Parse(db.DSN)
		require.NoError(t, err)
		all.Host += "," + u.Host
	}
	all.RawQuery += query
	return all.String()
}

// Cases 120 and 121.
func TestLocker_severalHosts(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	onStandby := &bundle{db: pair.Standby, via: usualWay(t, pair.Standby), raw: pair.Standby.Pool(t)}
	onPrimary := setupOn(t, pair.Primary, nil)

	whichever := *pair.Standby
	whichever.DSN = hosts(t, "", onStandby.via, onPrimary.via)
	_, careless := (&bundle{via: &whichever}).another(t, nil)
	_, err := careless.TryLock(t.Context(), advisory.ID(7))
	require.ErrorIs(t, err, advisory.ErrStandby)
	require.ErrorContains(t, err, "target_session_attrs=read-write")
	onStandby.noLockLeft(t)

	writable := *pair.Standby
	writable.DSN = hosts(t, "&target_session_attrs=read-write", onStandby.via, onPrimary.via)
	pool, locker := (&bundle{via: &writable}).another(t, nil)
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.True(t, onPrimary.isHeldBy(t, 7, lock.BackendPID()))
	require.Zero(t, onStandby.granted(t))
	_, err = onPrimary.locker.TryLock(t.Context(), advisory.ID(7))
	require.ErrorIs(t, err, advisory.ErrNotAcquired)

	require.NoError(t, pair.Primary.Server.Close()) // a crash
	require.Less(t, noticed(t, lock), 4*time.Second, "before the next heartbeat")
	require.ErrorIs(t, lock.Err(), advisory.ErrLost)
	require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost)
	_, err = locker.TryLock(t.Context(), advisory.ID(7))
	require.ErrorContains(t, err, "get a connection", "there is no primary")
	pair.Promote(t)
	again, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err, "on the same pool")
	require.True(t, onStandby.isHeldBy(t, 7, again.BackendPID()))
	require.NoError(t, again.Unlock(t.Context()))
	onStandby.noLockLeft(t)
	require.Zero(t, pool.Stat().AcquiredConns())
}

// What tells of a standby from version 14 on is in the handshake, and a query
// tells of it before.
func TestLocker_refusesAStandbyOfAnyVersion(t *testing.T) {
	t.Parallel()
	for status, version := range map[string]string{"on": "PostgreSQL 18.0 on x86_64-pc-linux-gnu", "": "PostgreSQL 13.9 on x86_64-pc-linux-gnu"} {
		peer := pgscript.Serve(t, pgscript.On("pg_is_in_recovery()",
			pgscript.Row(pgscript.Int4(10001), pgscript.Bool(true), pgscript.Text(version))))
		peer.SetParameter("in_hot_standby", status)
		pool, locker := onPeer(t, peer, nil)
		_, err := locker.TryLock(t.Context(), advisory.ID(7))
		require.ErrorIs(t, err, advisory.ErrStandby, version)
		require.Zero(t, pool.Stat().TotalConns(), version)
	}
}
