//go:build unix

package redislease_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
	"github.com/pgadvisory/pgadvisory/redislease"
)

// buffer is a log that several goroutines write.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// as is a change of options to a user that the rules make.
func (b *bundle) as(t *testing.T, rules ...any) func(*redis.Options) {
	t.Helper()
	require.NoError(t, b.observer.Do(t.Context(), append([]any{"ACL", "SETUSER", "app", "on", ">secret"}, rules...)...).Err())
	return func(o *redis.Options) { o.Username, o.Password = "app", "secret" }
}

func TestLock_whereNobodyMayPublish(t *testing.T) {
	t.Parallel()
	b := alone(t)
	app := b.as(t, "~app:*", "resetchannels", "+@all")
	log := new(buffer)
	config := &redislease.Config{Prefix: "app:", TTL: 8 * time.Second, Logger: slog.New(slog.NewTextHandler(log, nil))}
	holder, l := b.leaser(t, config, app), b.leaser(t, config, app)
	for range 2 {
		lease := mustLock(t, holder, "r")
		result := inBackground(func() (*redislease.Lease, error) { return l.Lock(t.Context(), "r") })
		renewals(t, lease)
		require.NoError(t, lease.Unlock(t.Context()))
		a := receive(t, result)
		require.NoError(t, a.err)
		require.NoError(t, a.lease.Unlock(t.Context()))
	}
	require.Equal(t, 2, strings.Count(log.String(), "not signalled"), "once for each Leaser: %s", log)
	keys, err := b.observer.Keys(t.Context(), "*").Result()
	require.NoError(t, err)
	require.Equal(t, []string{"app:{r}:token"}, keys)
}

func TestLock_whereNobodyMayRunScripts(t *testing.T) {
	t.Parallel()
	b := alone(t)
	l := b.leaser(t, nil, b.as(t, "~*", "&*", "+@all", "-@scripting"))
	_, err := l.TryLock(t.Context(), "r")
	require.ErrorIs(t, err, redislease.ErrUnavailable)
	require.ErrorContains(t, err, "EVALSHA")
	require.Error(t, l.Lead(t.Context(), "r", nil), "no waiting mends that")
}

// A server that has no replica it may write without refuses all. After an error
// nothing is held.
func TestLock_whereWritesAreRefused(t *testing.T) {
	t.Parallel()
	b := alone(t)
	l := b.leaser(t, &redislease.Config{TTL: 8 * time.Second})
	lease := mustLock(t, l, "held")
	require.NoError(t, b.observer.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	_, err := l.TryLock(t.Context(), "r")
	require.ErrorIs(t, err, redislease.ErrUnavailable)
	require.True(t, redis.IsNoReplicasError(err), err)
	require.Empty(t, b.held(t, "r"))
	require.NoError(t, lease.Err())
	err = lease.Unlock(t.Context())
	require.ErrorIs(t, err, redislease.ErrUnavailable)
	eventually(t, "it ends by its TTL", func() bool { return b.held(t, "held") == "" })
	require.NoError(t, b.observer.ConfigSet(t.Context(), "min-replicas-to-write", "0").Err())
	lease = mustLock(t, l, "held")
	require.NoError(t, b.observer.ConfigSet(t.Context(), "min-replicas-to-write", "1").Err())
	receive(t, lease.Done())
	require.Equal(t, redislease.LostExpired, reason(t, lease.Err()))
}

// A replica that has not got the lock is promoted: two hold, until the first one's
// renewal.
func TestFailover_thatLosesTheLock(t *testing.T) {
	t.Parallel()
	primary := alone(t)
	link := faultproxy.Start(t, primary.addr)
	replica := alone(t, "--replicaof", "127.0.0.1", fmt.Sprint(link.Addr().Port))
	linked := func() bool {
		info, err := replica.observer.Info(t.Context(), "replication").Result()
		require.NoError(t, err)
		return strings.Contains(info, "master_link_status:up")
	}
	eventually(t, "the replica follows", linked)
	client, proxy := primary.proxied(t)
	l := primary.on(t, client, &redislease.Config{TTL: 20 * time.Second})
	old := mustLock(t, l, "known")
	require.NoError(t, old.Unlock(t.Context()))
	eventually(t, "the replica knows", func() bool { return replica.observer.Exists(t.Context(), primary.key("known")+":token").Val() == 1 })
	link.Swallow()
	lease := mustLock(t, l, "r")
	require.NoError(t, primary.server.Kill())
	require.NoError(t, replica.observer.ReplicaOf(t.Context(), "NO", "ONE").Err())
	proxy.Retarget(replica.addr)
	proxy.Cut()
	next := mustLock(t, replica.leaser(t, nil), "r")
	require.Equal(t, lease.Token(), next.Token(), "the counter was lost too")
	receive(t, lease.Done())
	require.ErrorIs(t, lease.Err(), redislease.ErrLost)
	require.NoError(t, next.Check(t.Context()))
	require.Equal(t, int64(2), mustLock(t, replica.leaser(t, nil), "known").Token())
}

// Keys end at a time of the server's wall clock. A clock that is set forward ends them
// at once: both believe then, which is outside of what is assumed, and a fence decides.
// One that is set back leaves them longer than a TTL.
func TestLease_whenTheServersClockWasSet(t *testing.T) {
	t.Parallel()
	b := alone(t)
	const ttl = time.Minute
	l, other := b.leaser(t, &redislease.Config{TTL: ttl}), b.leaser(t, &redislease.Config{TTL: ttl})
	lease := mustLock(t, l, "forward")
	require.NoError(t, b.observer.PExpire(t.Context(), b.key("forward"), time.Millisecond).Err())
	next := mustLock(t, other, "forward")
	require.Equal(t, lease.Token()+1, next.Token())
	redislease.Beat(l)
	receive(t, lease.Done())
	require.NoError(t, next.Err())

	require.NoError(t, b.observer.Set(t.Context(), b.key("back"), "somebody", time.Hour).Err())
	calls := b.calls(t, "evalsha")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := other.Lock(ctx, "back")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, b.calls(t, "evalsha")-calls, int64(20), "it does not spin")
	lease = mustLock(t, l, "kept")
	require.NoError(t, b.observer.PExpire(t.Context(), b.key("kept"), time.Hour).Err())
	renewals(t, lease)
	require.NoError(t, lease.Unlock(t.Context()))
	other = b.leaser(t, &redislease.Config{TTL: time.Second})
	// A key that never ends, as others make, is asked for again all the same.
	require.NoError(t, b.observer.Set(t.Context(), b.key("never"), "somebody", 0).Err())
	result := inBackground(func() (*redislease.Lease, error) { return other.Lock(t.Context(), "never") })
	eventually(t, "it waits", func() bool { return redislease.Waiting(other, b.key("never")) == 1 })
	require.NoError(t, b.observer.Del(t.Context(), b.key("never")).Err())
	require.NoError(t, receive(t, result).err)
}

// What a name costs for ever, which Config.Counters says.
func TestCounters_costOfAName(t *testing.T) {
	t.Parallel()
	b := alone(t)
	used := func() int64 {
		info, err := b.observer.InfoMap(t.Context(), "memory").Result()
		require.NoError(t, err)
		return parse(t, info["Memory"]["used_memory_dataset"])
	}
	const names = 20_000
	l := b.leaser(t, nil)
	before := used()
	var work sync.WaitGroup
	for i := range 20 {
		// Ends after its names; the test waits.
		work.Go(func() {
			for j := range names / 20 {
				if err := mustLock(t, l, fmt.Sprintf("order-%d-%d", i, j)).Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	work.Wait()
	t.Logf("%d bytes for each name", (used()-before)/names)
	require.Less(t, (used()-before)/names, int64(200))
}
