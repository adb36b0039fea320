package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/lockview"
	"github.com/pgadvisory/pgadvisory/fencing"
)

// errTimeIsUp is the end of a wait with --wait.
var errTimeIsUp = errors.New("gave up")

// held is what the command runs under.
type held struct {
	lock *advisory.Lock
	what string   // for messages
	env  []string // for the command
}

const (
	// markDelay is how long a command runs before its holder tells since when
	// it holds: who is faster pays no round trip for that.
	markDelay = 250 * time.Millisecond
	markLimit = 5 * time.Second
)

// acquire waits for the lock, as the options say. It goes on waiting when the
// server restarts, once it was there.
func (r *runner) acquire(ctx context.Context, pool *pgxpool.Pool) (h held, err error) {
	if r.locker, err = advisory.New(pool, r.app.lockConfig()); err != nil {
		return held{}, err
	}
	fencer, err := fencing.New(r.locker, nil)
	if err != nil {
		return held{}, err
	}
	if !r.options.noWait {
		r.tell("waiting for %s", r.printable())
	}
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		h, err := r.try(ctx, fencer)
		switch {
		case err == nil:
			return h, nil
		case errors.Is(context.Cause(ctx), errTimeIsUp):
			return held{}, fmt.Errorf("%w after %v of waiting for %s", errTimeIsUp, r.options.wait.Duration, r.printable())
		case errors.Is(err, advisory.ErrNotAcquired) && !r.options.fence: // that one may say more
			return held{}, fmt.Errorf("%w: another session holds %s", advisory.ErrNotAcquired, r.printable())
		case r.options.noWait, ctx.Err() != nil, !r.mayPass(err):
			return held{}, err
		}
		r.awaitServer(err)
		pool.Reset() // another connection may lead to another server
		rest(ctx, pause)
	}
}

func (r *runner) try(ctx context.Context, fencer *fencing.Fencer) (h held, err error) {
	names := r.options.names
	name := names[0]
	h.what, h.env = r.printable(), []string{"PGADVISORY_NAME=" + strings.Join(names, "\n")}
	switch noWait := r.options.noWait; {
	case len(names) > 1:
		keys := make([]advisory.Key, len(names))
		for i, name := range names {
			keys[i] = advisory.Name(name)
		}
		lock := r.locker.LockAll
		if noWait {
			lock = r.locker.TryLockAll
		}
		h.lock, err = lock(ctx, keys...)
	case r.options.fence:
		lock := fencer.Lock
		if noWait {
			lock = fencer.TryLock
		}
		var lease *fencing.Lease
		if lease, err = lock(ctx, name); err == nil {
			token := strconv.FormatInt(int64(lease.Token()), 10)
			h.lock, h.what = lease.AdvisoryLock(), h.what+" with token "+token
			h.env = append(h.env, "PGADVISORY_RESOURCE="+name, "PGADVISORY_TOKEN="+token)
		}
	case r.options.limit > 0 && noWait:
		h.lock, err = r.locker.Semaphore(name, r.options.limit).TryAcquire(ctx)
	case r.options.limit > 0:
		h.lock, err = r.locker.Semaphore(name, r.options.limit).Acquire(ctx)
	case r.options.shared && noWait:
		h.lock, err = r.locker.TryRLock(ctx, advisory.Name(name))
	case r.options.shared:
		h.lock, err = r.locker.RLock(ctx, advisory.Name(name))
	case noWait:
		h.lock, err = r.locker.TryLock(ctx, advisory.Name(name))
	default:
		h.lock, err = r.locker.Lock(ctx, advisory.Name(name))
	}
	return h, err
}

// mark has the session tell since when it holds, for ls. The function that it
// returns ends that, and waits for its end.
func (r *runner) mark(lock *advisory.Lock) (stop func()) {
	granted := time.Now()
	quit, done := make(chan struct{}), make(chan struct{})
	// Ends by the function that is returned.
	go func() {
		defer close(done)
		select {
		case <-time.After(markDelay):
		case <-quit:
			return
		}
		// Like a heartbeat, this one ends the session if there is no answer.
		ctx, cancel := context.WithTimeout(context.Background(), markLimit)
		defer cancel()
		_ = lock.Tx(ctx, pgx.TxOptions{}, func(tx pgx.Tx) error {
			var now time.Time
			if err := tx.QueryRow(ctx, "SELECT pg_catalog.clock_timestamp()").Scan(&now); err != nil {
				return err
			}
			name := lockview.HolderName(r.options.names, r.application, now.Add(-time.Since(granted)))
			_, err := tx.Exec(ctx, "SELECT pg_catalog.set_config('application_name', $1, false)", name)
			return err
		})
	}()
	return func() {
		close(quit)
		<-done
	}
}
