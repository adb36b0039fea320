package bench_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sys/unix"

	"github.com/pgadvisory/pgadvisory/redislease"
)

func leaser(b *testing.B, client *redis.Client, config *redislease.Config) *redislease.Leaser {
	b.Helper()
	l := must(redislease.New(client, config))(b)
	b.Cleanup(func() { check(b, l.Close(context.Background())) })
	return l
}

func leaserLock(b *testing.B, client *redis.Client) cycle {
	b.Helper()
	l := leaser(b, client, &redislease.Config{TTL: ttl})
	return func(ctx context.Context, id int64) error {
		held, err := l.TryLock(ctx, redisKey(id))
		if err != nil {
			return err
		}
		return held.Unlock(ctx)
	}
}

// scripts lock and unlock with a script each, as few commands as a lock with a token can
// have. They know no owner when they lock, and nobody renews.
func scripts(client *redis.Client) cycle {
	lock := redis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) and redis.call('INCR', KEYS[2])`)
	unlock := redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1])`)
	return func(ctx context.Context, id int64) error {
		key, owner := redisKey(id), rand.Text()
		if err := lock.Run(ctx, client, []string{key, key + ":token"}, owner, ttl.Milliseconds()).Err(); err != nil {
			return err
		}
		return unlock.Run(ctx, client, []string{key}, owner).Err()
	}
}

// BenchmarkRedisTryLock is a lock in Redis that is free, and its unlock. redislock has no
// token. The ways take turns, since what is compared are few microseconds.
func BenchmarkRedisTryLock(b *testing.B) {
	client := startRedis(b)
	names := []string{"redislock", "redislease", "redsync", "two-scripts-with-INCR"}
	ways := []cycle{bsmLock(client), leaserLock(b, client), redsyncLock(client), scripts(client)}
	ctx, cancel := context.WithCancel(b.Context()) // as programs have one
	defer cancel()
	measured := make([][]time.Duration, len(ways))
	for range 200 {
		for i, way := range ways {
			check(b, way(ctx, 7)) // it is in the caches then
			for range 10 {
				start := time.Now()
				check(b, way(ctx, 7))
				measured[i] = append(measured[i], time.Since(start))
			}
		}
	}
	for i, name := range names {
		b.Run("how="+name, func(b *testing.B) { reportQuantiles(b, measured[i]) })
	}
}

// BenchmarkRenew is what it costs to hold a thousand leases with the default TTL: an
// operation is one round of renewals, of which there is one in 5 s. It reports the part
// of a CPU that this process uses for that.
func BenchmarkRenew(b *testing.B) {
	const leases, ttl, perTTL = 1000, 3 * time.Second, 3
	l := leaser(b, startRedis(b), &redislease.Config{TTL: ttl})
	held := make([]*redislease.Lease, leases)
	for i := range held {
		held[i] = must(l.TryLock(b.Context(), fmt.Sprint(i)))(b)
	}
	before := used(b)
	rounds := 0
	for b.Loop() {
		<-time.After(ttl / perTTL)
		rounds++
	}
	const usual = 15 * time.Second / perTTL
	b.ReportMetric(float64(used(b)-before)/float64(rounds)/float64(usual)*100, "%cpu")
	for _, lease := range held {
		check(b, lease.Err())
	}
}

// used is the time that this process has had of all CPUs.
func used(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	check(b, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
