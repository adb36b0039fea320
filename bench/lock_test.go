package bench_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
)

func run(b *testing.B, how string, c cycle) {
	b.Helper()
	b.Run("how="+how, func(b *testing.B) {
		check(b, c(b.Context(), 7)) // statements are prepared then
		b.ReportAllocs()
		for b.Loop() {
			check(b, c(b.Context(), 7))
		}
	})
}

// BenchmarkTryLock is a lock that is free, and its unlock.
func BenchmarkTryLock(b *testing.B) {
	pg, rd := startPostgres(b), startRedis(b)
	p := pool(b, pg, 2)
	conn := must(p.Acquire(b.Context()))(b)
	run(b, "pgxpool", acquired(p))
	run(b, "Locker", cycleOf(locker(b, pg, 2)))
	run(b, "Locker-own-pool", cycleOf(ownLocker(b, pg)))
	run(b, "Session", cycleOf(session(b, locker(b, pg, 2))))
	run(b, "pgx-pinned", pinned(conn))
	conn.Release()
	run(b, "database/sql", sqlConn(sqlDB(b, p, 2)))
	run(b, "goose", gooseLocker(b, sqlDB(b, p, 2)))
	run(b, "redislease", leaserLock(b, rd))
	run(b, "redislock", bsmLock(rd))
	run(b, "redsync", redsyncLock(rd))
}

// BenchmarkTryRLock is the shared mode.
func BenchmarkTryRLock(b *testing.B) {
	pg := startPostgres(b)
	p, l := pool(b, pg, 2), locker(b, pg, 2)
	run(b, "pgxpool", func(ctx context.Context, id int64) error {
		conn, err := p.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		if err := yes(ctx, conn, "SELECT pg_try_advisory_lock_shared($1)", id); err != nil {
			return err
		}
		return yes(ctx, conn, "SELECT pg_advisory_unlock_shared($1)", id)
	})
	run(b, "Locker", func(ctx context.Context, id int64) error {
		held, err := l.TryRLock(ctx, advisory.ID(id))
		if err != nil {
			return err
		}
		return held.Unlock(ctx)
	})
}

// BenchmarkTryLockAll is ten locks at once.
func BenchmarkTryLockAll(b *testing.B) {
	pg := startPostgres(b)
	p, l := pool(b, pg, 2), locker(b, pg, 2)
	s := session(b, l)
	ids, keys := make([]int64, 10), make([]advisory.Key, 10)
	for i := range ids {
		ids[i], keys[i] = int64(i), advisory.ID(int64(i))
	}
	all := func(lock func(context.Context, ...advisory.Key) (*advisory.Lock, error)) cycle {
		return func(ctx context.Context, _ int64) error {
			held, err := lock(ctx, keys...)
			if err != nil {
				return err
			}
			return held.Unlock(ctx)
		}
	}
	run(b, "pgxpool-arrays", onPool(p, func(ctx context.Context, conn *pgxpool.Conn) error { return arrayCycle(ctx, conn, ids) }))
	run(b, "pgxpool-one-by-one", onPool(p, func(ctx context.Context, conn *pgxpool.Conn) error {
		for _, id := range ids {
			if err := yes(ctx, conn, tryLock, id); err != nil {
				return err
			}
		}
		for _, id := range ids {
			if err := yes(ctx, conn, unlock, id); err != nil {
				return err
			}
		}
		return nil
	}))
	run(b, "Locker", all(l.TryLockAll))
	run(b, "Session", all(s.TryLockAll))
}

func onPool(p *pgxpool.Pool, do func(context.Context, *pgxpool.Conn) error) cycle {
	return func(ctx context.Context, _ int64) error {
		return p.AcquireFunc(ctx, func(conn *pgxpool.Conn) error { return do(ctx, conn) })
	}
}

// arrayCycle locks and unlocks all ids with one statement each.
func arrayCycle(ctx context.Context, db querier, ids []int64) error {
	for _, sql := range []string{
		"SELECT bool_and(ok) FROM (SELECT pg_try_advisory_lock(id) AS ok FROM unnest($1::bigint[]) AS id OFFSET 0) AS tried",
		"SELECT bool_and(ok) FROM (SELECT pg_advisory_unlock(id) AS ok FROM unnest($1::bigint[]) AS id OFFSET 0) AS freed",
	} {
		var ok bool
		if err := db.QueryRow(ctx, sql, ids).Scan(&ok); err != nil {
			return err
		}
	}
	return nil
}

// BenchmarkOwnKeys64 is 64 goroutines, each on a key of its own; an operation is
// one lock and unlock of one of them.
func BenchmarkOwnKeys64(b *testing.B) {
	const goroutines = 64
	pg, rd := startPostgres(b), startRedis(b)
	p := pool(b, pg, goroutines)
	runAll := func(how string, c cycle) {
		b.Run("how="+how, func(b *testing.B) {
			concurrently(b, goroutines, func(id int64) error { return c(b.Context(), id) })
		})
	}
	runAll("pgxpool-64-connections", acquired(p))
	runAll("Session", cycleOf(session(b, locker(b, pg, 2))))
	runAll("Locker-64-connections", cycleOf(locker(b, pg, goroutines)))
	runAll("redislock", bsmLock(rd))
	runAll("redsync", redsyncLock(rd))
	b.Run("how=one-array-of-64", func(b *testing.B) {
		ids := make([]int64, goroutines)
		for i := range ids {
			ids[i] = int64(i)
		}
		conn := must(p.Acquire(b.Context()))(b)
		defer conn.Release()
		for i := 0; i < b.N; i += goroutines {
			check(b, arrayCycle(b.Context(), conn, ids))
		}
	})
}

// concurrently divides b.N operations among goroutines.
func concurrently(b *testing.B, goroutines int, do func(id int64) error) {
	b.Helper()
	for i := range goroutines {
		check(b, do(int64(i)))
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	b.ResetTimer()
	var all sync.WaitGroup
	for i := range goroutines {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				if err := do(int64(i)); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkOneKey64 is 64 goroutines that all want the same lock.
func BenchmarkOneKey64(b *testing.B) {
	const goroutines = 64
	pg := startPostgres(b)
	p, l := pool(b, pg, goroutines), locker(b, pg, 2)
	b.Run("how=pg_advisory_lock-64-connections", func(b *testing.B) {
		concurrently(b, goroutines, func(int64) error {
			return p.AcquireFunc(b.Context(), func(conn *pgxpool.Conn) error {
				if _, err := conn.Exec(b.Context(), waitForLock, 7); err != nil {
					return err
				}
				return yes(b.Context(), conn, unlock, 7)
			})
		})
	})
	b.Run("how=Locker-one-connection", func(b *testing.B) {
		concurrently(b, goroutines, func(int64) error {
			held, err := l.Lock(b.Context(), advisory.ID(7))
			if err != nil {
				return err
			}
			return held.Unlock(b.Context())
		})
	})
}
