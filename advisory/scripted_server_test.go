package advisory_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgscript"
)

func terminating() *pgscript.Answer {
	return pgscript.Fatal("57P01", "terminating connection due to administrator command")
}

// Case 38: a session that ends in the middle of the lock query holds nothing. A
// connection that had not been used yet is replaced, which is not another
// acquisition but the same.
func TestTryLock_whenTheSessionEndsDuringTheQuery(t *testing.T) {
	t.Parallel()
	peer := serve(t, pgscript.On(tries, terminating(), nil))
	pool, locker := onPeer(t, peer, nil)
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	require.EqualValues(t, 10002, lock.BackendPID(), "the second session holds it")
	require.NoError(t, lock.Err(), "the end of the first is not its own")
	require.NoError(t, lock.Unlock(t.Context()))
	require.Equal(t, 2, peer.Sessions())
	require.Zero(t, pool.Stat().AcquiredConns())
}

// It is not tried without an end.
func TestTryLock_whenEverySessionEndsDuringTheQuery(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]*pgscript.Answer{"57P01": terminating(), "a closed socket": pgscript.Close()} {
		for _, text := range []string{tries, meets} {
			peer := serve(t, pgscript.On(text, answer))
			pool, locker := onPeer(t, peer, nil, maxConns(3))
			for _, m := range locking[:4] {
				before := peer.Sessions()
				lock, err := m.call(t.Context(), locker)
				require.Error(t, err, "%s, %s", name, m.name)
				require.Nil(t, lock)
				if name == "57P01" {
					require.ErrorContains(t, err, "57P01")
				}
				require.LessOrEqual(t, peer.Sessions()-before, 4, m.name)
				require.Zero(t, pool.Stat().AcquiredConns(), m.name)
			}
			closesAll(t, peer)
		}
	}
}

// Having waited, the session's end is the answer: what came between is not known.
func TestLock_whenTheSessionEndsDuringTheWait(t *testing.T) {
	t.Parallel()
	peer := serve(t, pgscript.On(tries, pgscript.Row(pgscript.Bool(false))), pgscript.On(waits, terminating()))
	pool, locker := onPeer(t, peer, nil)
	lock, err := locker.Lock(t.Context(), advisory.ID(7))
	require.Nil(t, lock)
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, "57P01", pgErr.Code)
	require.Equal(t, 1, peer.Sessions())
	require.Zero(t, pool.Stat().AcquiredConns())
	closesAll(t, peer)
}

// Cases 4 and 5: a refusal of the lock query is not taken for "not held".
func TestTryLock_whenTheServerAnswersWithAnError(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"57014", "25P02", "55P03", "53200"} {
		peer := serve(t, pgscript.On(tries, pgscript.Fail(code, "no")))
		pool, locker := onPeer(t, peer, nil)
		_, err := locker.TryLock(t.Context(), advisory.ID(7))
		require.ErrorContains(t, err, code)
		require.NotErrorIs(t, err, advisory.ErrLost, code)
		require.NotErrorIs(t, err, advisory.ErrNotAcquired, code)
		require.Zero(t, pool.Stat().TotalConns(), code)
		closesAll(t, peer)
	}
}

// Cases 9, 12, 25 and 117: whatever becomes of the unlock, it returns within its
// bound, and where the server has not confirmed it the session is ended.
func TestUnlock_whateverTheServerAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		answer *pgscript.Answer
		lost   advisory.LostReason // "" for an error that is no loss
		text   string
	}{
		{"57014", pgscript.Fail("57014", "canceling statement due to user request"), "", "57014"},
		{"25P02", pgscript.Fail("25P02", "current transaction is aborted").Status('E'), "", "25P02"},
		{"false", pgscript.Row(pgscript.Bool(false)), advisory.LostNotHeld, "not the owner"},
		{"57P01", terminating(), advisory.LostTerminated, "57P01"},
		{"a closed socket", pgscript.Close(), advisory.LostDisconnected, ""},
		{"never", pgscript.Hang(), advisory.LostUnresponsive, "did not answer within"},
		{"notices without an end", pgscript.Done("SELECT 1").Notices(-1), advisory.LostUnresponsive, "did not answer within"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			peer := serve(t, pgscript.On(unlocks, c.answer))
			bound := 30 * time.Second // of an answer that comes
			if c.lost == advisory.LostUnresponsive {
				bound = 500 * time.Millisecond
			}
			pool, locker := onPeer(t, peer, &advisory.Config{UnlockTimeout: bound})
			lock, err := locker.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err)
			elapsed := timed(t)
			err = lock.Unlock(t.Context())
			require.Less(t, elapsed(), bound+2*time.Second)
			require.Error(t, err)
			require.ErrorContains(t, err, c.text)
			require.Zero(t, pool.Stat().AcquiredConns())
			require.Zero(t, pool.Stat().TotalConns(), "the connection does not return to the pool")
			closesAll(t, peer)

			var lost *advisory.LostError
			if c.lost == "" {
				require.NotErrorIs(t, err, advisory.ErrLost)
			} else {
				require.ErrorAs(t, err, &lost)
				require.Equal(t, c.lost, lost.Reason)
			}
			require.Equal(t, c.lost == advisory.LostNotHeld, strings.Contains(err.Error(), "not held"))
			require.Equal(t, err, lock.Unlock(t.Context()))
			require.ErrorIs(t, lock.Err(), advisory.ErrUnlocked)
			require.NoError(t, locker.Close(t.Context()))
		})
	}
}

// Case 117: Close has the bounds of Unlock.
func TestLocker_Close_whenTheServerDoesNotAnswer(t *testing.T) {
	t.Parallel()
	peer := serve(t, pgscript.On(unlocks, pgscript.Hang()))
	pool, locker := onPeer(t, peer, &advisory.Config{UnlockTimeout: 500 * time.Millisecond})
	for i := range 3 {
		_, err := locker.TryLock(t.Context(), advisory.ID(int64(i)))
		require.NoError(t, err)
	}
	elapsed := timed(t)
	require.ErrorIs(t, locker.Close(t.Context()), advisory.ErrLost)
	require.Less(t, elapsed(), 2500*time.Millisecond)
	require.Zero(t, pool.Stat().AcquiredConns())
	closesAll(t, peer)
}

func TestLoss_heartbeatIsNotAnswered(t *testing.T) {
	t.Parallel()
	const heartbeat, timeout = 500 * time.Millisecond, 4 * time.Second
	for name, answer := range map[string]*pgscript.Answer{
		"silence": pgscript.Hang(), "notices without an end": pgscript.Done("SELECT 1").Notices(-1),
	} {
		fastest(t, (heartbeat+timeout)*11/10, func() time.Duration {
			peer := serve(t, pgscript.On(beats, answer))
			pool, locker := onPeer(t, peer, &advisory.Config{Heartbeat: heartbeat, HeartbeatTimeout: timeout})
			lock, err := locker.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err)
			took := noticed(t, lock)
			var lost *advisory.LostError
			require.ErrorAs(t, lock.Err(), &lost, name)
			require.Equal(t, advisory.LostUnresponsive, lost.Reason, name)
			require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost, name)
			require.Zero(t, pool.Stat().AcquiredConns(), name)
			closesAll(t, peer)
			return took
		})
	}
}

// What a session says besides is no loss, and no bar to the unlock.
func TestLoss_isNotWhatElseTheServerSays(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]*pgscript.Answer{
		"an error":             pgscript.Fail("57014", "canceling statement due to user request"), // case 12
		"a cached plan":        pgscript.Fail("0A000", "cached plan must not change result type"), // case 110
		"many notices":         pgscript.Answer{}.Notices(2000),
		"changes of a setting": pgscript.Answer{}.Parameter("TimeZone", "Europe/Zurich").Parameter("application_name", "another"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var seen atomic.Int64
			peer := serve(t, func(q pgscript.Query) *pgscript.Answer {
				if !strings.Contains(q.SQL, beats) {
					return nil
				}
				seen.Add(1)
				return answer
			})
			pool, locker := onPeer(t, peer, &advisory.Config{Heartbeat: 5 * time.Millisecond})
			lock, err := locker.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err)
			(&bundle{}).eventually(t, "ten heartbeats", func() bool { return seen.Load() >= 10 })
			require.NoError(t, lock.Err())
			require.NoError(t, lock.Unlock(t.Context()))
			require.Equal(t, 1, peer.Sessions())
			require.EqualValues(t, 1, pool.Stat().TotalConns())
		})
	}
}

// interjector is a relay to a peer that can say something to the clients while
// the peer says nothing.
type interjector struct {
	mu    sync.Mutex // guards the field below, and orders what is written
	conns []net.Conn
}

// carry makes a pool's connections go through it.
func (i *interjector) carry(c *pgxpool.Config) {
	dial := c.ConnConfig.DialFunc
	c.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		far, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		near, server := net.Pipe()
		i.mu.Lock()
		i.conns = append(i.conns, server)
		i.mu.Unlock()
		forward := func(to, from net.Conn, mu sync.Locker) {
			defer to.Close()
			defer from.Close()
			buf := make([]byte, 1<<16)
			for {
				n, err := from.Read(buf)
				if err != nil {
					return
				}
				mu.Lock()
				_, err = to.Write(buf[:n])
				mu.Unlock()
				if err != nil {
					return
				}
			}
		}
		go forward(server, far, &i.mu) // both end with the connection
		go forward(far, server, &sync.Mutex{})
		return near, nil
	}
}

func (i *interjector) say(t *testing.T, messages ...pgproto3.BackendMessage) {
	t.Helper()
	var bytes []byte
	for _, m := range messages {
		var err error
		bytes, err = m.Encode(bytes)
		require.NoError(t, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, conn := range i.conns {
		_, err := conn.Write(bytes) // returns when the client has read it
		require.NoError(t, err)
	}
}

func TestLoss_isNotWhatTheServerSaysUnasked(t *testing.T) {
	t.Parallel()
	relay := &interjector{}
	peer := serve(t)
	pool, locker := onPeer(t, peer, &advisory.Config{Heartbeat: time.Hour}, relay.carry)
	lock, err := locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	for range 1000 {
		relay.say(t,
			&pgproto3.ParameterStatus{Name: "TimeZone", Value: "Europe/Zurich"},
			&pgproto3.NoticeResponse{Severity: "WARNING", SeverityUnlocalized: "WARNING", Code: "01000", Message: "unasked"},
			&pgproto3.NotificationResponse{PID: 1, Channel: "unasked"},
		)
	}
	require.NoError(t, lock.Err())
	require.NoError(t, lock.Unlock(t.Context()))
	require.EqualValues(t, 1, pool.Stat().TotalConns())

	lock, err = locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	relay.say(t, &pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01", Message: "unasked"})
	require.Less(t, noticed(t, lock), time.Second, "the relay does what it is for")
	var lost *advisory.LostError
	require.ErrorAs(t, lock.Err(), &lost)
	require.Equal(t, advisory.LostTerminated, lost.Reason)
}
