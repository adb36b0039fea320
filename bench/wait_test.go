package bench_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// blocked waits on the server until it gets the lock.
func blocked(p *pgxpool.Pool) waiting {
	return func(ctx context.Context) (func() error, error) {
		conn, err := p.Acquire(ctx)
		if err != nil {
			return nil, err
		}
		_, err = conn.Exec(ctx, waitForLock, 7)
		return func() error {
			defer conn.Release()
			return yes(ctx, conn, unlock, 7)
		}, err
	}
}

// BenchmarkHandOff is the time from the call that unlocks to the return of the call
// that has been waiting for the lock, on another pool.
func BenchmarkHandOff(b *testing.B) {
	pg := startPostgres(b)
	p := pool(b, pg, 4)
	handOff(b, "pg_advisory_lock", func() waiting { return blocked(p) })
	handOff(b, "Locker", func() waiting {
		first, second, turn := locker(b, pg, 2), locker(b, pg, 2), 0
		return func(ctx context.Context) (func() error, error) {
			l := first
			if turn++; turn%2 == 0 {
				l = second
			}
			held, err := l.Lock(ctx, advisory.ID(7))
			return func() error { return held.Unlock(ctx) }, err
		}
	})
	handOff(b, "Locker-same-process", func() waiting {
		l := locker(b, pg, 2)
		return func(ctx context.Context) (func() error, error) {
			held, err := l.Lock(ctx, advisory.ID(7))
			return func() error { return held.Unlock(ctx) }, err
		}
	})
	handOff(b, "poll-50ms", func() waiting {
		return func(ctx context.Context) (func() error, error) {
			conn, err := p.Acquire(ctx)
			for err == nil {
				if err = yes(ctx, conn, tryLock, 7); !errors.Is(err, advisory.ErrNotAcquired) {
					break
				}
				err = nil
				<-time.After(50 * time.Millisecond)
			}
			return func() error {
				defer conn.Release()
				return yes(ctx, conn, unlock, 7)
			}, err
		}
	})
}

// waiting locks, and returns what unlocks.
type waiting func(context.Context) (unlock func() error, err error)

func handOff(b *testing.B, how string, prepare func() waiting) {
	b.Helper()
	type grant struct {
		at     time.Time
		unlock func() error
		err    error
	}
	b.Run("how="+how, func(b *testing.B) {
		lock := prepare()
		var took []time.Duration
		for i := range max(b.N, 1) + 1 {
			unlock := must(lock(b.Context()))(b)
			next := make(chan grant, 1)
			go func() {
				unlock, err := lock(b.Context())
				next <- grant{time.Now(), unlock, err}
			}()
			// It waits by then; at another phase of a poll each time.
			<-time.After(20*time.Millisecond + time.Duration(i*7919%50)*time.Millisecond/5)
			start := time.Now()
			check(b, unlock())
			got := <-next
			check(b, got.err)
			if i > 0 { // connections are met then
				took = append(took, got.at.Sub(start))
			}
			check(b, got.unlock())
		}
		reportQuantiles(b, took)
	})
}

// BenchmarkLoss is the time from the statement that terminates a backend to the
// news of it: where Done is closed, and the limit, a read of the socket that
// nothing else is done with.
func BenchmarkLoss(b *testing.B) {
	pg := startPostgres(b)
	admin := pool(b, pg, 1)
	kill := func(pid uint32) time.Time {
		start := time.Now()
		_, err := admin.Exec(b.Context(), "SELECT pg_terminate_backend($1)", int(pid))
		check(b, err)
		return start
	}
	b.Run("how=blocking-read", func(b *testing.B) {
		var took []time.Duration
		for range max(b.N, 1) {
			conn := pg.Conn(b)
			read := make(chan time.Time)
			go func() {
				_, _ = conn.WaitForNotification(b.Context()) // until it is terminated
				read <- time.Now()
			}()
			<-time.After(2 * time.Millisecond) // it reads by then
			start := kill(conn.PgConn().PID())
			took = append(took, (<-read).Sub(start))
		}
		reportQuantiles(b, took)
	})
	b.Run("how=Locker", func(b *testing.B) {
		l := locker(b, pg, 2)
		var took []time.Duration
		for i := range max(b.N, 1) {
			held := must(l.TryLock(b.Context(), advisory.ID(7)))(b)
			<-time.After(time.Duration(i%5) * time.Millisecond / 2) // before and after the watch begins
			told := make(chan time.Time)
			go func() {
				<-held.Done()
				told <- time.Now()
			}()
			start := kill(held.BackendPID())
			took = append(took, (<-told).Sub(start))
			if err := held.Unlock(b.Context()); !errors.Is(err, advisory.ErrLost) {
				b.Fatal(err)
			}
		}
		reportQuantiles(b, took)
	})
}
