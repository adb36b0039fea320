//go:build unix

package worker

import (
	"context"
	"crypto/rand"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
)

// naive is a lock in Redis as many a program has it: SET NX PX, and DEL. It is not
// renewed.
type naive struct {
	client      *redis.Client
	lateTrust   bool // trusts a lease from the time of the answer on
	carelessDel bool // deletes whatever is there
}

var delScript = redis.NewScript(`return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`)

// late is how long half of the answers take for [LateTrust]: more than the margin.
const late = 500 * time.Millisecond

func (n *naive) Close(context.Context) error { return nil }

func (n *naive) TryLock(ctx context.Context, resource string) (fencing.Hold, error) {
	h := &naiveHold{naive: n, key: "naive:" + resource, owner: rand.Text()}
	from := time.Now()
	ok, err := n.client.SetNX(ctx, h.key, h.owner, TTL).Result()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, advisory.ErrNotAcquired
	}
	if n.lateTrust {
		if mrand.N(2) == 0 {
			pause(ctx, late)
		}
		from = time.Now()
	}
	h.ctx, h.cancel = context.WithCancelCause(context.Background())
	timer := time.AfterFunc(time.Until(from.Add(TTL*8/10)), func() { h.cancel(fmt.Errorf("%w: expired", advisory.ErrLost)) })
	context.AfterFunc(h.ctx, func() { timer.Stop() })
	return h, nil
}

func (n *naive) Lock(ctx context.Context, resource string) (fencing.Hold, error) {
	for {
		h, err := n.TryLock(ctx, resource)
		if err == nil {
			return h, nil
		}
		if !pause(ctx, 5*time.Millisecond) {
			return nil, ctx.Err()
		}
	}
}

type naiveHold struct {
	*naive
	key, owner string
	ctx        context.Context
	cancel     context.CancelCauseFunc
	once       sync.Once
	result     error
}

func (h *naiveHold) Check(context.Context) error { return h.Err() }
func (h *naiveHold) Done() <-chan struct{}       { return h.ctx.Done() }
func (h *naiveHold) Err() error                  { return context.Cause(h.ctx) }

func (h *naiveHold) Context(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(h.ctx, func() { cancel(h.Err()) })
	return ctx, func() { stop(); cancel(context.Canceled) }
}

func (h *naiveHold) Unlock(context.Context) error {
	h.once.Do(func() { h.result = h.unlock() })
	return h.result
}

func (h *naiveHold) unlock() error {
	h.cancel(advisory.ErrUnlocked)
	ctx, cancel := context.WithTimeout(context.Background(), UnlockTimeout)
	defer cancel()
	if h.carelessDel {
		return h.client.Del(ctx, h.key).Err()
	}
	n, err := delScript.Run(ctx, h.client, []string{h.key}, h.owner).Int()
	if err == nil && n == 0 {
		err = advisory.ErrLost
	}
	return err
}
