package advisory_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// payload is close to the longest one (the manual, NOTIFY).
var payload = strings.Repeat("x", 7900)

// notify sends n notifications of 7.9 kB each.
func notify(t *testing.T, conn *pgx.Conn, n int) {
	t.Helper()
	exec(t, conn, fmt.Sprintf("SELECT count(pg_notify('ring', '%s' || i)) FROM generate_series(1, %d) i", payload, n))
}

// listen has the session that holds the lock listen, by way of Tx.
func listen(t *testing.T, lock *advisory.Lock) {
	t.Helper()
	require.NoError(t, lock.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "LISTEN ring")
		return err
	}))
}

// isDelivered reports whether the server has sent the session all that was notified.
func (b *bundle) isDelivered(t *testing.T) bool {
	t.Helper()
	return scan[float64](t, b, "SELECT pg_notification_queue_usage()") == 0
}

// Not parallel: it looks at the memory of the process. 3,000 are 24 MB.
func TestNotify_isNotKept(t *testing.T) {
	const sent, limit = 3000, 6 << 20
	b := setup(t)
	for name, read := range map[string]func(*testing.T, *advisory.Lock){
		"by the watch": func(*testing.T, *advisory.Lock) {},
		"in a transaction": func(t *testing.T, lock *advisory.Lock) {
			t.Helper()
			require.NoError(t, lock.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), "SELECT 1")
				return err
			}))
		},
	} {
		t.Run(name, func(t *testing.T) {
			lock, err := b.locker.TryLock(t.Context(), advisory.ID(1))
			require.NoError(t, err)
			listen(t, lock)
			sender := b.session(t)
			before := heap()
			for range 10 {
				notify(t, sender, sent/10)
				read(t, lock)
			}
			b.eventually(t, "all has been sent", func() bool { return b.isDelivered(t) })
			b.eventually(t, "nothing is kept while the lock is held", func() bool { return heap() < before+limit })
			require.NoError(t, lock.Unlock(t.Context()))
			require.Less(t, heap(), before+limit, "on the connection in the pool")
		})
	}
}

// The operations of a Session leave the watch no time to read.
func TestNotify_isNotKeptBySessions(t *testing.T) {
	const sent, limit = 3000, 6 << 20
	b := setup(t)
	s := b.openSession(t)
	kept, err := s.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	listen(t, kept)
	sender := b.session(t)
	before := heap()
	for range 10 {
		notify(t, sender, sent/10)
		lock, err := s.TryLock(t.Context(), advisory.ID(2))
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))
	}
	b.eventually(t, "nothing is kept", func() bool { return heap() < before+limit })
	require.NoError(t, s.Close(t.Context()))
	require.Less(t, heap(), before+limit)
}

func TestNotify_goesToTheHandlerOfThePool(t *testing.T) {
	t.Parallel()
	var got atomic.Int64
	b := setup(t, func(c *pgxpool.Config) {
		c.ConnConfig.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) {
			if n.Channel == "ring" && n.Payload != "" {
				got.Add(1)
			}
		}
	})
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	listen(t, lock)
	notify(t, b.session(t), 100)
	b.eventually(t, "the handler has got all", func() bool { return got.Load() == 100 })
	require.NoError(t, lock.Unlock(t.Context()))
	require.EqualValues(t, 100, got.Load())
}

// What comes while fn runs is for fn.
func TestNotify_canBeReadInATransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(1))
	require.NoError(t, err)
	listen(t, lock)
	require.NoError(t, lock.Tx(t.Context(), pgx.TxOptions{}, func(tx pgx.Tx) error {
		// The server sends notifications between transactions.
		if _, err := tx.Exec(context.Background(), "COMMIT"); err != nil {
			return err
		}
		notify(t, b.session(t), 1)
		n, err := tx.Conn().WaitForNotification(t.Context())
		if err == nil {
			require.Equal(t, payload+"1", n.Payload)
			_, err = tx.Exec(context.Background(), "BEGIN")
		}
		return err
	}))
	require.NoError(t, lock.Unlock(t.Context()))
}
