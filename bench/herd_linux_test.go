package bench_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// BenchmarkHerd is many sessions, each as of a process of its own, that wait for one key:
// how many processors that keeps the server busy, and then how long it takes from an
// unlock to the next holder, each of which keeps the lock for 20 ms.
func BenchmarkHerd(b *testing.B) {
	pg := pgtest.StartWith(b, "max_connections=600")
	sizes := []int{50, 200, 500}
	if testing.Short() {
		sizes = sizes[:1]
	}
	for _, sessions := range sizes {
		b.Run(fmt.Sprintf("sessions=%d/how=pg_advisory_lock", sessions), func(b *testing.B) {
			herd(b, pg, sessions, func() (waiting, func()) {
				p := pg.Pool(b, func(c *pgxpool.Config) { c.MaxConns = 1 })
				return blocked(p), p.Close
			})
		})
		b.Run(fmt.Sprintf("sessions=%d/how=Locker", sessions), func(b *testing.B) {
			herd(b, pg, sessions, func() (waiting, func()) {
				p := pg.Pool(b, func(c *pgxpool.Config) { c.MaxConns = 1 })
				l := must(advisory.New(p, &advisory.Config{Reserve: advisory.NoReserve, Heartbeat: time.Minute, VanishTimeout: 10 * time.Minute}))(b)
				return func(ctx context.Context) (func() error, error) {
						held, err := l.Lock(ctx, advisory.ID(7))
						return func() error { return held.Unlock(ctx) }, err
					}, func() {
						_ = l.Close(context.Background())
						p.Close()
					}
			})
		})
	}
}

// herd has sessions wait, reports the processors that this takes, and then lets the first
// of them have the lock one after the other.
func herd(b *testing.B, pg *pgtest.Database, sessions int, start func() (waiting, func())) {
	b.Helper()
	const handOffs, keeps = 50, 20 * time.Millisecond
	settling, measuring := 10*time.Second, 5*time.Second
	if testing.Short() {
		settling, measuring = time.Second, time.Second
	}
	admin := pg.Pool(b)
	holder := must(admin.Acquire(b.Context()))(b)
	defer holder.Release()
	check(b, yes(b.Context(), holder, tryLock, 7))
	ctx, cancel := context.WithCancel(b.Context())
	granted, let := make(chan time.Time), make(chan struct{})
	var waiters sync.WaitGroup
	for range sessions {
		lock, stop := start()
		waiters.Go(func() {
			defer stop()
			unlock, err := lock(ctx)
			if err != nil {
				return // it was one too many
			}
			select {
			case granted <- time.Now():
				<-let
			case <-ctx.Done():
			}
			_ = unlock() // the end of ctx may have ended it
		})
	}
	<-time.After(settling)
	pids := backends(b, admin)
	before := time.Now()
	cpu := cpuOf(pids)
	<-time.After(measuring)
	b.ReportMetric(float64(cpuOf(pids)-cpu)/float64(time.Since(before)), "cores")

	unlockedAt := time.Now()
	check(b, yes(b.Context(), holder, unlock, 7))
	var took []time.Duration
	for range min(handOffs, sessions) {
		took = append(took, (<-granted).Sub(unlockedAt))
		<-time.After(keeps)
		unlockedAt = time.Now()
		let <- struct{}{}
	}
	cancel()
	waiters.Wait()
	reportQuantiles(b, took)
}

// backends are the processes that serve clients, but for the one that asks.
func backends(b *testing.B, p *pgxpool.Pool) (pids []int) {
	b.Helper()
	rows := must(p.Query(b.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"))(b)
	defer rows.Close()
	for rows.Next() {
		var pid int
		check(b, rows.Scan(&pid))
		pids = append(pids, pid)
	}
	return pids
}

// cpuOf is the time that processes have run.
func cpuOf(pids []int) (sum time.Duration) {
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
		if err != nil {
			continue // it has ended
		}
		ran, _, _ := strings.Cut(string(text), " ")
		n, _ := strconv.ParseInt(ran, 10, 64)
		sum += time.Duration(n)
	}
	return sum
}
