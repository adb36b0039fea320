//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
)

// noticeLimit bounds the wait for the news that the lock is lost, which comes
// within a heartbeat and its timeout at the latest.
const noticeLimit = 15 * time.Second

// replica exports whatever is not exported yet, when it is its turn.
type replica struct {
	settings
	pool *pgxpool.Pool
	link *link
}

// runReplica is the main function of a replica's process.
func runReplica(s settings) int {
	r := &replica{settings: s}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	r.link = newLink(os.Stdin, os.Stdout, cancel)

	if err := r.run(ctx); err != nil {
		r.link.Report(event{Kind: failed, Text: err.Error()})
		return 1
	}
	return 0
}

// run waits for the lock and works until nothing is left to do.
func (r *replica) run(ctx context.Context) (err error) {
	if r.pool, err = connect(ctx, r.dsn, r.schema, r.schema+" "+r.name); err != nil {
		return err
	}
	defer r.pool.Close()
	locker, err := advisory.New(r.pool, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close(ctx)) }()
	fencer, err := fencing.New(locker, nil)
	if err != nil {
		return err
	}

	r.link.Report(event{Kind: asks})
	lease, err := fencer.Lock(ctx, r.resource)
	if err != nil {
		return err
	}
	r.link.Report(event{Kind: holds, Token: lease.Token(), Backend: lease.BackendPID()})

	days, err := r.exportAll(ctx, lease)
	if errors.Is(err, fencing.ErrStale) || errors.Is(lease.Err(), advisory.ErrLost) {
		return r.giveUp(ctx, lease)
	}
	if err == nil {
		text := "unlocks, nothing was left to export"
		if days > 0 {
			text = fmt.Sprintf("unlocks after %d days, all is exported", days)
		}
		r.link.Report(event{Kind: done, Token: lease.Token(), Text: text})
	}
	return errors.Join(err, lease.Unlock(ctx))
}

// exportAll exports one day after the other and returns how many it did.
func (r *replica) exportAll(ctx context.Context, lease *fencing.Lease) (days int, err error) {
	// Work that only the holder should do ends when the lock is known to be
	// lost. It saves work; what keeps the result right is the fence.
	held, cancel := lease.Context(ctx)
	defer cancel()
	for {
		var day *time.Time
		if err := r.pool.QueryRow(held, nextDaySQL).Scan(&day); err != nil {
			return days, err
		}
		if day == nil {
			return days, nil
		}
		if err := r.export(ctx, held, lease, *day); err != nil {
			return days, err
		}
		days++
	}
}

// giveUp is the end of a holder whose lock is lost: another one has the work
// now. A refusal may come before the news of the loss, which it waits for only
// to report it.
func (r *replica) giveUp(ctx context.Context, lease *fencing.Lease) error {
	ctx, cancel := context.WithTimeout(ctx, noticeLimit)
	defer cancel()
	select {
	case <-lease.Done():
	case <-ctx.Done():
		return fmt.Errorf("not told that the lock is lost: %w", context.Cause(ctx))
	}
	loss, ok := errors.AsType[*advisory.LostError](lease.Err())
	if !ok {
		return fmt.Errorf("the lock ended otherwise than by a loss: %w", lease.Err())
	}
	r.link.Report(event{Kind: lost, Token: lease.Token(), Text: string(loss.Reason)})
	r.link.Report(event{Kind: done, Token: lease.Token(), Text: "gives up: another replica has the work now"})
	return nil
}
