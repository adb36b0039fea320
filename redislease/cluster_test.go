//go:build unix

package redislease_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/internal/freeport"
	"github.com/pgadvisory/pgadvisory/redislease"
)

// slots are those of a Cluster.
const slots = 16384

// cluster starts a Cluster of three, each with a third of the slots.
func cluster(t *testing.T) (*redis.ClusterClient, []*bundle) {
	t.Helper()
	var nodes []*bundle
	var addrs []string
	for range 3 {
		// The port of the cluster's bus is 10000 above, unless it is given.
		bus, err := freeport.Next()
		require.NoError(t, err)
		node := alone(t, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(bus),
			"--cluster-require-full-coverage", "no", "--cluster-node-timeout", "60000")
		nodes, addrs = append(nodes, node), append(addrs, node.addr)
	}
	for i, node := range nodes {
		first, last := slots*i/3, slots*(i+1)/3-1
		require.NoError(t, node.observer.ClusterAddSlotsRange(t.Context(), first, last).Err())
		if i > 0 {
			server := nodes[0].server
			require.NoError(t, node.observer.Do(t.Context(), "CLUSTER", "MEET", "127.0.0.1", server.Port, busPort(t, nodes[0])).Err())
		}
	}
	for _, node := range nodes {
		eventually(t, "all know each other", func() bool {
			known, err := node.observer.ClusterShards(t.Context()).Result()
			info := node.observer.ClusterInfo(t.Context()).Val()
			return err == nil && len(known) == 3 && strings.Contains(info, "cluster_state:ok")
		})
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	t.Cleanup(func() { require.NoError(t, client.Close()) })
	return client, nodes
}

// busPort is the one at which the other nodes reach a node.
func busPort(t *testing.T, node *bundle) string {
	t.Helper()
	port, err := node.observer.ConfigGet(t.Context(), "cluster-port").Result()
	require.NoError(t, err)
	return port["cluster-port"]
}

func TestCluster_locksRenewsAndSignals(t *testing.T) {
	t.Parallel()
	client, nodes := cluster(t)
	b := nodes[0]
	config := &redislease.Config{TTL: time.Minute}
	l, other := b.on(t, client, config), b.on(t, client, config)
	var leases []*redislease.Lease
	var locks []string
	for i := range 30 {
		lease := mustLock(t, l, fmt.Sprint(i))
		require.Equal(t, int64(1), lease.Token())
		leases = append(leases, lease)
		_, err := other.TryLock(t.Context(), fmt.Sprint(i))
		require.ErrorIs(t, err, redislease.ErrNotAcquired)
	}
	for _, node := range nodes {
		some := node.locks(t)
		require.NotEmpty(t, some, "each node has some")
		locks = append(locks, some...)
	}
	require.Len(t, locks, len(leases))
	renewals(t, leases...)

	// One node that has lost its scripts.
	require.NoError(t, nodes[1].observer.ScriptFlush(t.Context()).Err())
	renewals(t, leases...)
	for _, lease := range leases {
		require.NoError(t, lease.Check(t.Context()))
	}

	// Who waits is woken, whichever node has the lock.
	var waiting []<-chan attempt
	for i := range leases {
		waiting = append(waiting, inBackground(func() (*redislease.Lease, error) { return other.Lock(t.Context(), fmt.Sprint(i)) }))
		eventually(t, "it waits", func() bool { return redislease.Waiting(other, b.key(fmt.Sprint(i))) == 1 })
	}
	for i, lease := range leases {
		require.NoError(t, lease.Unlock(t.Context()))
		a := receive(t, waiting[i])
		require.NoError(t, a.err)
		require.Equal(t, int64(2), a.lease.Token())
		require.NoError(t, a.lease.Unlock(t.Context()))
	}
}

// A node is killed with what it knew. Leases of the others are held.
func TestCluster_thatLosesANode(t *testing.T) {
	t.Parallel()
	client, nodes := cluster(t)
	l := nodes[0].on(t, client, &redislease.Config{TTL: 3 * time.Second, UnlockTimeout: time.Second})
	leases := make(map[string]*redislease.Lease)
	for i := range 12 {
		lease := mustLock(t, l, fmt.Sprint(i))
		leases[nodes[0].key(lease.Resource())] = lease
	}
	gone := nodes[2].locks(t)
	require.NotEmpty(t, gone)
	require.NoError(t, nodes[2].server.Kill())
	for lock, lease := range leases {
		if slices.Contains(gone, lock) {
			receive(t, lease.Done())
			require.Equal(t, redislease.LostExpired, reason(t, lease.Err()))
		}
	}
	for lock, lease := range leases {
		if !slices.Contains(gone, lock) {
			require.NoError(t, lease.Err())
			require.NoError(t, lease.Unlock(t.Context()))
		}
	}
}

func TestCluster_returnsSoonAfterItsContextEnds(t *testing.T) {
	t.Parallel()
	client, nodes := cluster(t)
	l := nodes[0].on(t, client, nil)
	for _, node := range nodes {
		require.NoError(t, node.server.Freeze())
		t.Cleanup(func() { require.NoError(t, node.server.Thaw()) })
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	var work sync.WaitGroup
	for i := range 10 {
		// Ends with ctx; the test waits.
		work.Go(func() {
			if _, err := l.TryLock(ctx, fmt.Sprint(i)); err == nil {
				t.Error("locked")
			}
		})
	}
	ended := make(chan struct{})
	// Ends with the calls; the test waits.
	go func() { work.Wait(); close(ended) }()
	receive(t, ended)
}
