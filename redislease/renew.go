package redislease

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// batch is how many leases one round trip renews or releases at most.
const batch = 1000

// beatLocked begins to renew all leases but those that were confirmed a moment ago. mu
// must be held.
func (k *keeper) beatLocked(now time.Duration) {
	c := &k.leaser.config
	var due []*Lease
	for lease := range k.leases {
		lease.mu.Lock()
		if now-lease.confirmed >= c.renewEvery()/4 {
			due = append(due, lease)
		}
		lease.mu.Unlock()
	}
	if len(due) == 0 {
		k.nextBeat = now + c.renewEvery()
		return
	}
	// The next one begins then if there is no answer.
	k.nextBeat = now + c.renewLimit()
	k.beats++
	beat := k.beats
	// Ends with its round trips, which the TTL or the client's timeouts bound.
	k.leaser.spawn(func() {
		var isUnanswered atomic.Bool
		var work sync.WaitGroup
		for _, leases := range k.leaser.byNode(due) {
			work.Go(func() {
				for some := range slices.Chunk(leases, batch) {
					if !k.renew(some) {
						isUnanswered.Store(true)
					}
				}
			})
		}
		work.Wait()
		k.mu.Lock()
		defer k.mu.Unlock()
		switch {
		case isUnanswered.Load():
			k.nextBeat = min(k.nextBeat, k.leaser.now()+c.retryAfter())
		case beat == k.beats:
			k.nextBeat = now + c.renewEvery()
		}
		k.wake()
	})
}

// byNode groups leases by the node of a Cluster that has them: those of one that does not
// answer keep no others waiting.
func (l *Leaser) byNode(leases []*Lease) map[*redis.Client][]*Lease {
	cluster, ok := l.own.(*redis.ClusterClient)
	if !ok {
		return map[*redis.Client][]*Lease{nil: leases}
	}
	ctx, cancel := context.WithTimeout(context.Background(), l.config.renewLimit())
	defer cancel()
	nodes := make(map[*redis.Client][]*Lease)
	for _, lease := range leases {
		node, err := cluster.MasterForKey(ctx, lease.lock)
		if err != nil {
			node = nil // the client finds out by itself, or fails
		}
		nodes[node] = append(nodes[node], lease)
	}
	return nodes
}

// renew renews leases, and reports whether Redis has answered for all of them.
func (k *keeper) renew(leases []*Lease) bool {
	// Longer than until the next beat, which takes another connection: an answer that
	// is only slow counts too.
	ctx, cancel := context.WithTimeout(context.Background(), k.leaser.config.trusted())
	defer cancel()
	renewals := make([]*renewal, len(leases))
	for i, lease := range leases {
		renewals[i] = &renewal{lock: lease.lock, owner: lease.owner}
	}
	sent := k.leaser.now()
	renewAll(ctx, k.leaser.own, renewals, k.leaser.config.TTL)
	isDone := true
	for i, r := range renewals {
		a, err := r.answer()
		if err != nil {
			isDone = false // it may succeed in time
			continue
		}
		leases[i].learn(a, sent)
	}
	return isDone
}

// learn applies what Redis said of a lease in an answer to a request.
func (l *Lease) learn(a answer, sent time.Duration) {
	switch a {
	case answerHeld:
		l.confirm(sent)
	case answerTaken:
		l.lose(LostTaken, ErrNotOwner)
	default:
		l.lose(LostMissing, ErrNotOwner)
	}
}

// check renews one lease for its holder, who waits until ctx ends.
func (k *keeper) check(ctx context.Context, lease *Lease) error {
	l := k.leaser
	if !l.begin() {
		return ErrClosed
	}
	defer l.work.Done()
	within, cancel := context.WithTimeout(ctx, l.config.trusted())
	defer cancel()
	ask := func(client redis.UniversalClient) error {
		sent := l.now()
		text, err := renewScript.Run(within, client, []string{lease.lock}, lease.owner, l.config.TTL.Milliseconds()).Text()
		if err == nil {
			lease.learn(answer(text), sent)
		}
		return err
	}
	var err error
	if l.lanes != nil {
		if notRun := l.lanes.run(within, func(client redis.UniversalClient) { err = ask(client) }); notRun != nil {
			err = notRun
		}
	} else {
		answers := make(chan error, 1)
		// Ends with its round trips, which the client's timeouts bound; Close waits for it.
		l.work.Go(func() { answers <- ask(l.own) })
		select {
		case err = <-answers:
		case <-within.Done():
			err = within.Err()
		}
	}
	if err != nil {
		return l.failed(ctx, err)
	}
	return nil
}
