package bench_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// BenchmarkHold is taking and giving back many locks on one connection; an
// operation is all of them.
func BenchmarkHold(b *testing.B) {
	pg := startPostgres(b)
	p := pool(b, pg, 2)
	for _, n := range []int{1000, 10000} {
		ids, keys := make([]int64, n), make([]advisory.Key, n)
		for i := range ids {
			ids[i], keys[i] = int64(i), advisory.ID(int64(i))
		}
		b.Run(fmt.Sprintf("locks=%d/how=pgx-one-array", n), func(b *testing.B) {
			conn := must(p.Acquire(b.Context()))(b)
			defer conn.Release()
			for b.Loop() {
				check(b, arrayCycle(b.Context(), conn, ids))
			}
		})
		b.Run(fmt.Sprintf("locks=%d/how=Session", n), func(b *testing.B) {
			benchHold(b, session(b, locker(b, pg, 2)), keys)
		})
		if n > 1000 {
			continue // at the end of each statement the server looks at all locks of the session: minutes
		}
		b.Run(fmt.Sprintf("locks=%d/how=pgx-one-by-one", n), func(b *testing.B) {
			conn := must(p.Acquire(b.Context()))(b)
			defer conn.Release()
			for b.Loop() {
				for _, sql := range []string{tryLock, unlock} {
					for _, id := range ids {
						check(b, yes(b.Context(), conn, sql, id))
					}
				}
			}
		})
	}
}

func benchHold(b *testing.B, s *advisory.Session, keys []advisory.Key) {
	b.Helper()
	locks := make([]*advisory.Lock, len(keys))
	inParallel := func(do func(i int) error) {
		var all sync.WaitGroup
		for i := range keys {
			all.Go(func() {
				if err := do(i); err != nil {
					b.Error(err)
				}
			})
		}
		all.Wait()
	}
	lock := func(i int) (err error) {
		locks[i], err = s.TryLock(b.Context(), keys[i])
		return err
	}
	unlock := func(i int) error { return locks[i].Unlock(b.Context()) }

	before := heap()
	for i := range 1000 { // without goroutines, which the runtime keeps
		check(b, lock(i))
	}
	perLock := float64(heap()-before) / 1000
	for i := range 1000 {
		check(b, unlock(i))
	}
	for b.Loop() {
		inParallel(lock)
		inParallel(unlock)
	}
	b.ReportMetric(perLock, "heap-B/lock")
}

// heap is what is in use after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
