//go:build unix

package worker

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/redislease"
)

// TTL is that of the leases of the keys in Redis. The holder of one that Redis has lost
// notices with its next renewal, within the same bound as that of a session.
const TTL = 750 * time.Millisecond

// leaser is a lock service in Redis, right or wrong.
type leaser interface {
	fencing.Mutex[fencing.Hold]
	Close(ctx context.Context) error
}

// leases is redislease as a [leaser].
type leases struct{ *redislease.Leaser }

func (l leases) TryLock(ctx context.Context, resource string) (fencing.Hold, error) {
	lease, err := l.Leaser.TryLock(ctx, resource)
	return held(lease, err)
}

func (l leases) Lock(ctx context.Context, resource string) (fencing.Hold, error) {
	lease, err := l.Leaser.Lock(ctx, resource)
	return held(lease, err)
}

func held(lease *redislease.Lease, err error) (fencing.Hold, error) {
	if err != nil {
		return nil, err
	}
	return lease, nil
}

// newOver makes the fencer of the keys that are locked in Redis.
func (p *process) newOver() (err error) {
	p.redis = redis.NewClient(&redis.Options{Addr: p.Redis, DialTimeout: dialLimit, ReadTimeout: callLimit, ContextTimeoutEnabled: true})
	right, err := redislease.New(p.redis, &redislease.Config{TTL: TTL, UnlockTimeout: UnlockTimeout})
	if err != nil {
		return err
	}
	p.leaser = leases{right}
	switch p.Flaw {
	case LateTrust, CarelessDel:
		if err := right.Close(context.Background()); err != nil {
			return err
		}
		p.leaser = &naive{client: p.redis, lateTrust: p.Flaw == LateTrust, carelessDel: p.Flaw == CarelessDel}
	case NoSecondLook:
		p.leaser = &altered{leaser: p.leaser, alter: func(_ context.Context, _ string, h fencing.Hold) fencing.Hold { return unlooked{h} }}
	default:
		// it is right
	}
	if p.Habit == LostBeforeDraw {
		p.leaser = &altered{leaser: p.leaser, alter: p.loseSome}
	}
	p.over, err = fencing.NewOver(p.leaser, p.pool, &fencing.Config{MaxIdle: maxIdle})
	return err
}

// loseSome is what [LostBeforeDraw] is. The time is enough for another to get the lock, and a
// token.
func (p *process) loseSome(ctx context.Context, resource string, h fencing.Hold) fencing.Hold {
	if rand.N(3) == 0 {
		lock := "lease:{" + resource + "}"
		p.redis.Del(ctx, lock)
		p.redis.Publish(ctx, lock, "") // wakes who waits
		pause(ctx, 200*time.Millisecond)
	}
	return h
}

// altered is a leaser whose holds are altered.
type altered struct {
	leaser
	alter func(ctx context.Context, resource string, h fencing.Hold) fencing.Hold
}

func (a *altered) TryLock(ctx context.Context, resource string) (fencing.Hold, error) {
	h, err := a.leaser.TryLock(ctx, resource)
	if err != nil {
		return nil, err
	}
	return a.alter(ctx, resource, h), nil
}

func (a *altered) Lock(ctx context.Context, resource string) (fencing.Hold, error) {
	h, err := a.leaser.Lock(ctx, resource)
	if err != nil {
		return nil, err
	}
	return a.alter(ctx, resource, h), nil
}

// unlooked is a hold that nobody asks Redis about.
type unlooked struct{ fencing.Hold }

func (unlooked) Check(context.Context) error { return nil }
