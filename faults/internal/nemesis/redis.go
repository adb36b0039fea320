//go:build unix

package nemesis

import (
	"context"
	"time"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
)

// heldBack is how late answers come that are held back: more than the margin of a lease.
const heldBack = 600 * time.Millisecond

// onRedis does something to Redis, and lets it be for a while.
func (n *Nemesis) onRedis(ctx context.Context, a Action, severs bool, do, undo func(context.Context) error) error {
	since := history.Now()
	if err := do(ctx); err != nil {
		return err
	}
	if !severs {
		n.struck(a, since, history.Event{Redis: true})
	}
	pause(ctx, a.For)
	err := undo(ctx)
	if severs {
		n.struck(a, since, history.Event{Redis: true, Severs: true})
	}
	return err
}

// redisKill loses all that Redis knows.
func (n *Nemesis) redisKill(ctx context.Context, a Action) error {
	r := n.Arena.Redis
	return n.onRedis(ctx, a, true, func(context.Context) error { return r.Kill() }, r.Restart)
}

func (n *Nemesis) redisStop(ctx context.Context, a Action) error {
	a.For *= 4 // some leases end meanwhile
	r := n.Arena.Redis
	return n.onRedis(ctx, a, false,
		func(context.Context) error { return r.Freeze() }, func(context.Context) error { return r.Thaw() })
}

func (n *Nemesis) redisPause(ctx context.Context, a Action) error {
	a.For *= 4
	return n.onRedis(ctx, a, false, func(ctx context.Context) error {
		return n.Arena.Redis.Do(ctx, "CLIENT", "PAUSE", a.For.Milliseconds())
	}, func(context.Context) error { return nil })
}

func (n *Nemesis) redisFlush(ctx context.Context, a Action) error {
	n.target(ctx, a)
	a.For = 0
	return n.onRedis(ctx, a, true, func(ctx context.Context) error {
		return n.Arena.Redis.Do(ctx, "FLUSHALL")
	}, func(context.Context) error { return nil })
}

// redisDel takes the lock away a few times: one of them may come between somebody's grant
// and draw.
func (n *Nemesis) redisDel(ctx context.Context, a Action) error {
	n.target(ctx, a)
	since := history.Now()
	for range 1 + a.Draw%4 {
		if err := n.Arena.Redis.Lose(ctx, a.Key); err != nil {
			return err
		}
		n.struck(a, since, history.Event{Redis: true, Severs: true, Only: true})
		pause(ctx, 100*time.Millisecond)
		since = history.Now()
	}
	return nil
}

// onRedisLink does something to the connections of one worker with Redis.
func (n *Nemesis) onRedisLink(ctx context.Context, a Action, do, undo func(*faultproxy.Proxy)) {
	m, _ := n.target(ctx, a)
	since := history.Now()
	do(m.RedisProxy)
	n.struck(a, since, history.Event{Worker: m.Number(), Redis: true})
	pause(ctx, a.For)
	undo(m.RedisProxy)
}

func (n *Nemesis) redisCut(ctx context.Context, a Action) error {
	a.For = 0
	n.onRedisLink(ctx, a, (*faultproxy.Proxy).Cut, nothing)
	return nil
}

func (n *Nemesis) redisDeaf(ctx context.Context, a Action) error {
	a.For += silence
	n.onRedisLink(ctx, a, swallow(faultproxy.ToClient), (*faultproxy.Proxy).Cut)
	return nil
}

// redisLate holds answers back. Then nothing arrives at Redis any more, so that what was
// granted is not renewed.
func (n *Nemesis) redisLate(ctx context.Context, a Action) error {
	a.For += heldBack
	n.onRedisLink(ctx, a, func(p *faultproxy.Proxy) {
		p.Delay(faultproxy.ToClient, heldBack)
	}, func(p *faultproxy.Proxy) {
		p.SwallowOnly(faultproxy.ToServer)
		p.HangNew(true)
		pause(ctx, 2*silence)
		p.Delay(faultproxy.ToClient, 0)
		p.HangNew(false)
		p.Cut()
	})
	return nil
}
