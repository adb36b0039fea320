package bench_test

import (
	"context"
	"net"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// startPostgres starts a server that makes commits durable, with room for many locks.
func startPostgres(b *testing.B) *pgtest.Database {
	b.Helper()
	return pgtest.StartWith(b, "fsync=on", "full_page_writes=on", "max_wal_size=2GB", "checkpoint_timeout=1h", "max_locks_per_transaction=256")
}

// pool returns a pool whose connections are made already.
func pool(b *testing.B, db *pgtest.Database, size int32, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	b.Helper()
	p := db.Pool(b, append(configure, func(c *pgxpool.Config) { c.MaxConns = size })...)
	conns := make([]*pgxpool.Conn, size)
	for i := range conns {
		conns[i] = must(p.Acquire(b.Context()))(b)
	}
	for _, c := range conns {
		c.Release()
	}
	return p
}

// locker returns a Locker on an application's pool.
func locker(b *testing.B, db *pgtest.Database, size int32) *advisory.Locker {
	b.Helper()
	return closing(b, must(advisory.New(pool(b, db, size), &advisory.Config{Reserve: advisory.NoReserve}))(b))
}

// ownLocker returns a Locker on a pool of its own.
func ownLocker(b *testing.B, db *pgtest.Database) *advisory.Locker {
	b.Helper()
	return closing(b, must(advisory.Open(b.Context(), db.DSN, nil))(b))
}

func closing(b *testing.B, l *advisory.Locker) *advisory.Locker {
	b.Helper()
	b.Cleanup(func() { check(b, l.Close(context.Background())) })
	return l
}

func session(b *testing.B, l *advisory.Locker) *advisory.Session {
	b.Helper()
	return must(l.Session(b.Context()))(b)
}

// startRedis starts a server that keeps nothing on disk, which is the fastest.
func startRedis(b *testing.B) *redis.Client {
	b.Helper()
	program, err := exec.LookPath("redis-server")
	if err != nil {
		b.Skip("redis-server is not installed: ", err)
	}
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(b)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	check(b, listener.Close())
	server := exec.Command(program, "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir", b.TempDir())
	check(b, server.Start())
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port})
	b.Cleanup(func() {
		check(b, client.Close())
		check(b, server.Process.Kill())
		_, _ = server.Process.Wait() // it was killed
	})
	deadline := time.Now().Add(10 * time.Second)
	for client.Ping(b.Context()).Err() != nil {
		if time.Now().After(deadline) {
			b.Fatal("redis-server does not answer")
		}
		<-time.After(10 * time.Millisecond)
	}
	return client
}

// must takes a call that can fail: must(call())(b).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// reportQuantiles reports p50 and p99 of what was measured, and the mean of it
// instead of the time per operation.
func reportQuantiles(b *testing.B, measured []time.Duration) {
	b.Helper()
	slices.Sort(measured)
	at := func(q float64) float64 {
		return float64(measured[min(len(measured)-1, int(q*float64(len(measured))))].Nanoseconds())
	}
	b.ReportMetric(at(0.50), "p50-ns")
	b.ReportMetric(at(0.99), "p99-ns")
	b.ReportMetric(0, "ns/op")
}
