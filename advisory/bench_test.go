package advisory_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

func benchPool(b *testing.B, size int32) *pgxpool.Pool {
	b.Helper()
	pool := pgtest.New(b).Pool(b, func(c *pgxpool.Config) { c.MaxConns = size })
	warm := make([]*pgxpool.Conn, size) // connecting is not what is measured
	for i := range warm {
		c, err := pool.Acquire(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		warm[i] = c
	}
	for _, c := range warm {
		c.Release()
	}
	return pool
}

func benchLocker(b *testing.B, pool *pgxpool.Pool) *advisory.Locker {
	b.Helper()
	locker, err := advisory.New(pool, &advisory.Config{Reserve: advisory.NoReserve})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := locker.Close(context.Background()); err != nil {
			b.Error(err)
		}
	})
	return locker
}

// BenchmarkTryLockUnlock compares a lock and its unlock with the bare statements
// on a connection that is taken from the pool and given back.
func BenchmarkTryLockUnlock(b *testing.B) {
	b.Run("how=bare", func(b *testing.B) {
		pool := benchPool(b, 2)
		for b.Loop() {
			c, err := pool.Acquire(b.Context())
			if err != nil {
				b.Fatal(err)
			}
			var ok bool
			if err := c.QueryRow(b.Context(), "SELECT pg_try_advisory_lock($1)", int64(7)).Scan(&ok); err != nil || !ok {
				b.Fatal(ok, err)
			}
			if err := c.QueryRow(b.Context(), "SELECT pg_advisory_unlock($1)", int64(7)).Scan(&ok); err != nil || !ok {
				b.Fatal(ok, err)
			}
			c.Release()
		}
	})
	b.Run("how=Locker", func(b *testing.B) {
		locker := benchLocker(b, benchPool(b, 2))
		for b.Loop() {
			benchCycle(b, func() (*advisory.Lock, error) { return locker.TryLock(b.Context(), advisory.ID(7)) })
		}
	})
	b.Run("how=Session", func(b *testing.B) {
		session := benchSession(b, benchLocker(b, benchPool(b, 2)))
		for b.Loop() {
			benchCycle(b, func() (*advisory.Lock, error) { return session.TryLock(b.Context(), advisory.ID(7)) })
		}
	})
}

// BenchmarkManyLocks compares goroutines that lock keys of their own on one
// Session with as many connections, one for each lock.
func BenchmarkManyLocks(b *testing.B) {
	for _, n := range []int{16, 64} {
		b.Run(fmt.Sprintf("goroutines=%d/how=Locker", n), func(b *testing.B) {
			locker := benchLocker(b, benchPool(b, int32(n)))
			benchConcurrently(b, n, locker.TryLock)
		})
		b.Run(fmt.Sprintf("goroutines=%d/how=Session", n), func(b *testing.B) {
			benchConcurrently(b, n, benchSession(b, benchLocker(b, benchPool(b, 2))).TryLock)
		})
	}
}

// BenchmarkHandOver is how long it takes from an unlock to the next holder, in
// another pool, which waits, compared with a poll of 50 ms.
func BenchmarkHandOver(b *testing.B) {
	for how, wait := range map[string]func(*advisory.Locker) (*advisory.Lock, error){
		"Lock": func(l *advisory.Locker) (*advisory.Lock, error) { return l.Lock(context.Background(), advisory.ID(7)) },
		"poll=50ms": func(l *advisory.Locker) (*advisory.Lock, error) {
			for {
				lock, err := l.TryLock(context.Background(), advisory.ID(7))
				if err == nil {
					return lock, nil
				}
				<-time.After(50 * time.Millisecond)
			}
		},
	} {
		b.Run("how="+how, func(b *testing.B) {
			db := pgtest.New(b)
			first, second := benchLocker(b, db.Pool(b)), benchLocker(b, db.Pool(b))
			var total time.Duration
			for b.Loop() {
				lock, err := first.Lock(b.Context(), advisory.ID(7))
				if err != nil {
					b.Fatal(err)
				}
				got := make(chan time.Time)
				go func() {
					next, err := wait(second)
					if err != nil {
						b.Error(err)
					}
					got <- time.Now()
					if err := next.Unlock(context.Background()); err != nil {
						b.Error(err)
					}
					got <- time.Now()
				}()
				<-time.After(5 * time.Millisecond) // it waits by now
				start := time.Now()
				if err := lock.Unlock(b.Context()); err != nil {
					b.Fatal(err)
				}
				total += (<-got).Sub(start)
				<-got
			}
			b.ReportMetric(float64(total.Microseconds())/float64(b.N), "µs/handover")
		})
	}
}

func benchSession(b *testing.B, locker *advisory.Locker) *advisory.Session {
	b.Helper()
	session, err := locker.Session(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return session
}

func benchCycle(b *testing.B, try func() (*advisory.Lock, error)) {
	b.Helper()
	lock, err := try()
	if err == nil {
		err = lock.Unlock(context.Background())
	}
	if err != nil {
		b.Error(err)
	}
}

func benchConcurrently(b *testing.B, n int, try func(context.Context, advisory.Key) (*advisory.Lock, error)) {
	b.Helper()
	var id atomic.Int64
	b.SetParallelism(n / 2) // times GOMAXPROCS, which is 2 where this was measured
	b.RunParallel(func(pb *testing.PB) {
		key := advisory.ID(id.Add(1))
		for pb.Next() {
			benchCycle(b, func() (*advisory.Lock, error) { return try(context.Background(), key) })
		}
	})
}
