package advisory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// Behind a proxy or a pooler the server watches that, and VanishTimeout does
// nothing for the holder: it is for what is in between to watch its clients. The
// holder's own bound is the same as ever.
func TestLoss_packetsAreLostBehindAProxy(t *testing.T) {
	t.Parallel()
	const heartbeat, timeout, vanish = 500 * time.Millisecond, time.Second, 3 * time.Second
	b, n, from := inNetwork(t)
	haproxy := func(bind string, client ...string) string {
		return b.db.HAProxy(t, pgtest.HAProxy{Host: n.host.String(), Bind: bind, Client: client})
	}
	pgbouncer := func(settings ...string) string {
		return b.db.PgBouncer(t, "session", append(settings, "listen_addr = 127.0.0.1,"+n.host.String())...)
	}
	ways := []struct {
		name   string
		dsn    string
		isKept bool
		lock   *advisory.Lock
	}{
		{name: "none", dsn: b.db.DSN},
		{name: "HAProxy", dsn: haproxy(""), isKept: true},
		{name: "HAProxy that watches", dsn: haproxy("tcp-ut 3s", "option clitcpka", "clitcpka-idle 1s", "clitcpka-intvl 1s", "clitcpka-cnt 3")},
		{name: "HAProxy that ends what idles", dsn: haproxy("", "timeout client 3s")},
		{name: "PgBouncer", dsn: pgbouncer(), isKept: true},
		{name: "PgBouncer that watches", dsn: pgbouncer("tcp_keepidle = 1", "tcp_keepintvl = 1", "tcp_keepcnt = 3", "tcp_user_timeout = 3000")},
	}
	for i := range ways {
		var err error
		_, locker := behind(t, b.db, ways[i].dsn, nil).another(t, &advisory.Config{
			SessionPooler: true, Heartbeat: heartbeat, HeartbeatTimeout: timeout, VanishTimeout: vanish,
		}, from)
		ways[i].lock, err = locker.TryLock(t.Context(), advisory.ID(int64(i)))
		require.NoError(t, err, ways[i].name)
	}
	start := time.Now()
	n.drop(t)
	for _, way := range ways {
		noticed(t, way.lock)
		var lost *advisory.LostError
		require.ErrorAs(t, way.lock.Err(), &lost, way.name)
		require.Equal(t, advisory.LostUnresponsive, lost.Reason, way.name)
	}
	for i, way := range ways {
		if !way.isKept {
			require.Eventually(t, func() bool { return !b.isHeldBy(t, int64(i), way.lock.BackendPID()) }, 30*time.Second, 20*time.Millisecond, way.name)
			t.Logf("%s: free after %s", way.name, time.Since(start).Round(time.Millisecond))
		}
	}
	<-time.After(time.Until(start.Add(3 * vanish)))
	for i, way := range ways {
		if way.isKept {
			require.True(t, b.isHeldBy(t, int64(i), way.lock.BackendPID()), "%s: the server can't know", way.name)
			b.terminate(t, way.lock.BackendPID())
		}
	}
	n.heal(t)
}
