package advisory_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// behind is a bundle whose Lockers go through something else.
func behind(t *testing.T, db *pgtest.Database, dsn string, config *advisory.Config, configure ...func(*pgxpool.Config)) *bundle {
	t.Helper()
	via := *db
	via.DSN = dsn
	b := &bundle{db: db, via: &via, raw: db.Pool(t), isOnPooler: true}
	b.pool, b.locker = b.another(t, config, configure...)
	return b
}

// handshake is a connection that has its client see another process ID, as some
// services do that keep the session.
type handshake struct {
	net.Conn
	pid uint32

	mu   sync.Mutex
	sent bytes.Buffer // by the client
	in   bytes.Buffer // to be read
	done bool         // the process ID has been told
}

// tells makes the connections of a pool tell pid.
func tells(pid uint32, made *[]*handshake) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		dial := c.ConnConfig.DialFunc
		c.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			h := &handshake{Conn: conn, pid: pid}
			*made = append(*made, h)
			return h, err
		}
	}
}

func (h *handshake) Write(p []byte) (int, error) {
	h.mu.Lock()
	h.sent.Write(p)
	h.mu.Unlock()
	return h.Conn.Write(p)
}

func (h *handshake) Sent() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sent.String()
}

// Read goes by messages until it has seen BackendKeyData.
func (h *handshake) Read(p []byte) (int, error) {
	const backendKeyData = 'K'
	if h.in.Len() == 0 && !h.done {
		var head [5]byte
		if _, err := io.ReadFull(h.Conn, head[:]); err != nil {
			return 0, err
		}
		body := make([]byte, binary.BigEndian.Uint32(head[1:])-4)
		if _, err := io.ReadFull(h.Conn, body); err != nil {
			return 0, err
		}
		if head[0] == backendKeyData {
			binary.BigEndian.PutUint32(body, h.pid)
			h.done = true
		}
		h.in.Write(head[:])
		h.in.Write(body)
	}
	if h.in.Len() > 0 {
		return h.in.Read(p)
	}
	return h.Conn.Read(p)
}

// Neon's proxy, Supavisor and PgDog invent it; RDS Proxy sends 0.
func TestLocker_behindWhatTellsAnotherProcessID(t *testing.T) {
	t.Parallel()
	for name, pid := range map[string]uint32{"invented": 4_000_000_000, "none": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var made []*handshake
			db := pgtest.New(t)
			b := behind(t, db, db.DSN, patient(nil), tells(pid, &made), maxConns(2))
			for _, service := range []string{"Neon", "Supavisor", "PgDog", "Pgpool-II", "RDS Proxy", "set Config.SessionPooler", "kept its backend"} {
				b.refuses(t, advisory.ErrPooler, service)
			}

			pool, locker := b.another(t, allowing(), tells(pid, &made), maxConns(2))
			made = nil
			lock, err := locker.TryLock(t.Context(), advisory.ID(7))
			require.NoError(t, err)
			require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
			require.NoError(t, lock.Unlock(t.Context()))
			require.EqualValues(t, 1, pool.Stat().NewConnsCount())
			require.Len(t, made, 2)
			const pins = "SET pgadvisory.session = 'kept'"
			if pid == 0 {
				require.Contains(t, made[0].Sent(), pins, "a service that sends 0 keeps a session from its first SET on")
			} else {
				require.NotContains(t, made[0].Sent(), pins)
			}
			b.leakCheck(t)
		})
	}
}

// With one server Pgpool-II looks like that server. With a standby, to which it
// sends what only reads, its handshake may tell of the standby.
//
//nolint:tparallel // the subtests share a database
func TestLocker_behindPgpool(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	for name, servers := range map[string][]*pgtest.Database{"one server": {pair.Primary}, "with a standby": {pair.Primary, pair.Standby}} {
		t.Run(name, func(t *testing.T) { //nolint:paralleltest // they share a database
			dsn := pgtest.Pgpool(t, "streaming_replication", servers)
			for name, test := range behaviours {
				if name == "lost" {
					continue // see TestLoss_behindPgpool
				}
				if name == "settings" && len(servers) > 1 {
					continue // the test reads them, and the standby would answer
				}
				t.Run(name, func(t *testing.T) { test(trial{t, behind(t, pair.Primary, dsn, allowing())}) })
			}
		})
	}
}

// Pgpool-II tells a client that its backend has ended when that speaks next.
func TestLoss_behindPgpool(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	config := allowing()
	config.Heartbeat = 200 * time.Millisecond
	b := behind(t, pair.Primary, pgtest.Pgpool(t, "streaming_replication", []*pgtest.Database{pair.Primary, pair.Standby}), config)
	lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
	require.NoError(t, err)
	b.terminate(t, lock.BackendPID())
	noticed(t, lock)
	require.ErrorIs(t, lock.Err(), advisory.ErrLost)
	require.ErrorIs(t, lock.Unlock(t.Context()), advisory.ErrLost)
	b.leakCheck(t)
}

// Heartbeats ask the primary, whichever server reads are sent to.
func TestLock_heartbeatsBehindPgpool(t *testing.T) {
	t.Parallel()
	pair := pgtest.StartPair(t)
	config := allowing()
	config.Heartbeat = 20 * time.Millisecond
	b := behind(t, pair.Primary, pgtest.Pgpool(t, "streaming_replication", []*pgtest.Database{pair.Primary, pair.Standby}), config, maxConns(2))
	_, refusing := b.another(t, patient(nil))
	_, err := refusing.TryLock(t.Context(), advisory.ID(7))
	require.ErrorIs(t, err, advisory.ErrPooler)
	require.ErrorContains(t, err, "kept its backend")
	for range 8 { // each session has a server of its own for reads
		lock, err := b.locker.TryLock(t.Context(), advisory.ID(7))
		require.NoError(t, err)
		require.True(t, b.isHeldBy(t, 7, lock.BackendPID()))
		b.untilBeaten(t, lock, 3)
		require.NoError(t, lock.Unlock(t.Context()))
		b.pool.Reset()
	}
}

// What a client leaves when its process is killed is for the pooler to free. With
// an empty server_reset_query it does not, and the lock stays until the pooled
// session serves somebody who clears it.
func TestPooler_thatResetsNothingKeepsTheLockOfAKilledClient(t *testing.T) {
	t.Parallel()
	for reset, isKept := range map[string]bool{"": true, "DISCARD ALL": false} {
		b := onPgBouncer(t, "session", allowing(), "server_reset_query = "+reset, "default_pool_size = 1")
		client := b.via.Conn(t, simpleProtocol)
		pid := pidOf(t, client)
		exec(t, client, "SELECT pg_advisory_lock(7)")
		require.NoError(t, client.PgConn().Conn().Close())
		next := b.via.Conn(t, simpleProtocol) // served once the pooler has the one session back
		require.Equal(t, pid, pidOf(t, next))
		require.NoError(t, next.Close(t.Context()))
		require.Equal(t, isKept, b.isHeldBy(t, 7, pid), "server_reset_query = %s", reset)

		lock, err := b.locker.TryLock(t.Context(), advisory.ID(8))
		require.NoError(t, err)
		require.Equal(t, pid, lock.BackendPID())
		require.False(t, b.isHeldBy(t, 7, pid), "a Locker clears what a session comes with")
		require.NoError(t, lock.Unlock(t.Context()))
		b.noLockLeft(t)
	}
}

// A proxy that forwards bytes is no pooler: sessions are kept, and nothing more
// is asked.
func TestLocker_behindHAProxy(t *testing.T) {
	t.Parallel()
	via := *pgtest.New(t)
	via.DSN = via.HAProxy(t, pgtest.HAProxy{})
	for name, test := range behaviours {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			test(trial{t, behind(t, db, via.Named(t, db.Name).DSN, nil)})
		})
	}
}
