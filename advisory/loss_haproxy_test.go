package advisory_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// A cluster manager says which server is the primary, and HAProxy asks it. A
// server that is none any more keeps its clients, who hold its locks, unless
// HAProxy shuts their sessions.
func TestLoss_haproxyShutsTheSessionsOfAFormerPrimary(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		option string
		isLost bool
	}{
		"on-marked-down shutdown-sessions": {"on-marked-down shutdown-sessions", true},
		"default":                          {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var isFormer atomic.Bool
			var asked atomic.Int32 // since then
			manager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if isFormer.Load() {
					asked.Add(1)
					w.WriteHeader(http.StatusServiceUnavailable)
				}
			}))
			t.Cleanup(manager.Close)
			_, port, err := net.SplitHostPort(manager.Listener.Addr().String())
			require.NoError(t, err)
			db := pgtest.New(t)
			b := behind(t, db, db.HAProxy(t, pgtest.HAProxy{
				Server: []string{"option httpchk"},
				Check:  "check port " + port + " inter 50ms fall 1 " + c.option,
			}), nil)
			lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err)
			isFormer.Store(true)
			if c.isLost {
				noticed(t, lock)
				var lost *advisory.LostError
				require.ErrorAs(t, lock.Err(), &lost)
				require.Equal(t, advisory.LostDisconnected, lost.Reason)
				require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost)
				b.leakCheck(t)
				return
			}
			b.eventually(t, "HAProxy knows", func() bool { return asked.Load() >= 3 })
			require.NoError(t, lock.Err())
			require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
			require.NoError(t, lock.Unlock(t.Context()))
		})
	}
}
