//go:build unix

package worker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/faults/internal/history"
	"github.com/pgadvisory/pgadvisory/fencing"
)

// The orders, a line each.
const (
	OrderRest = "rest" // end what is under way, hold nothing, and say so
	OrderEnd  = "end"  // after rest: close all, look for leaks, say so and exit
	OrderHog  = "hog"  // with a duration: take all connections of the pool for so long
)

// endLimit bounds each step of a good end.
const endLimit = 10 * time.Second

// process is one life of a worker.
type process struct {
	Config
	teller

	pool   *pgxpool.Pool
	locker *advisory.Locker
	fencer *fencing.Fencer
	redis  *redis.Client
	leaser leaser
	over   *fencing.Fencer // of the leased keys
	work   sync.WaitGroup
}

func run(ctx context.Context, in *bufio.Scanner, out io.Writer) error {
	config, err := configFromEnv()
	if err != nil {
		return err
	}
	p := &process{Config: config, teller: teller{out: out, worker: config.Worker, life: config.Life}}
	poolConfig, err := config.pool()
	if err != nil {
		return err
	}
	if p.pool, err = pgxpool.NewWithConfig(ctx, poolConfig); err != nil {
		return err
	}
	if p.locker, p.fencer, err = config.newFencer(p.pool); err != nil {
		return err
	}
	if len(p.Leased) > 0 {
		if err := p.newOver(); err != nil {
			return err
		}
	}
	p.tell(history.Event{Kind: history.Born})

	awake, rest := context.WithCancel(ctx)
	defer rest()
	var always sync.WaitGroup
	always.Go(func() { p.watchStalls(awake) })
	for i := range holders {
		p.work.Go(func() { p.newClient(i).hold(awake) })
	}
	p.work.Go(func() { p.newClient(holders).read(awake) })

	for in.Scan() {
		order, arg, _ := strings.Cut(in.Text(), " ")
		switch order {
		case OrderHog:
			d, err := time.ParseDuration(arg)
			if err != nil {
				return err
			}
			p.work.Go(func() { p.hog(awake, d) })
		case OrderRest:
			rest()
			p.work.Wait()
			always.Wait()
			p.tell(history.Event{Kind: history.Rest, Outcome: p.atRest()})
		case OrderEnd:
			p.end(ctx)
			return nil
		default:
			return fmt.Errorf("order %q", in.Text())
		}
	}
	return errors.Join(in.Err(), errors.New("no orders any more"))
}

// atRest is not OK if a connection of the pool is in use while nobody works.
func (p *process) atRest() history.Outcome {
	deadline := time.Now().Add(endLimit)
	for p.pool.Stat().AcquiredConns() > 0 {
		if time.Now().After(deadline) {
			return history.Failed
		}
		pause(context.Background(), 10*time.Millisecond)
	}
	return history.OK
}

// end closes all and tells what is left.
func (p *process) end(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endLimit)
	defer cancel()
	err := p.locker.Close(ctx)
	if p.leaser != nil {
		err = errors.Join(err, p.leaser.Close(ctx), p.redis.Close())
	}
	closed := make(chan struct{})
	// Ends when the pool is closed. If that never happens this process ends.
	go func() {
		p.pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-ctx.Done():
		err = errors.Join(err, errors.New("the pool does not close"))
	}
	if err == nil {
		err = goleak.Find()
	}
	e := history.Event{Kind: history.Ended, Outcome: history.OK}
	if err != nil {
		e.Outcome, e.Err = history.Failed, err.Error()
	}
	p.tell(e)
}

// hog takes what connections the pool has, so that the others find it
// exhausted.
func (p *process) hog(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	since := history.Now()
	var taken []*pgxpool.Conn
	for len(taken) < poolSize {
		conn, err := p.pool.Acquire(ctx)
		if err != nil {
			break
		}
		taken = append(taken, conn)
	}
	<-ctx.Done()
	for _, conn := range taken {
		conn.Release()
	}
	p.tell(history.Event{Kind: history.Hogged, Since: since})
}

// pause waits, and reports false if ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
