package advisory

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/internal/critical"
	"github.com/pgadvisory/pgadvisory/internal/grant"
)

// Lead makes this process a candidate, of whom one leads at a time, until ctx
// ends. It waits for the lock as [Locker.Lock] does, calls fn while it holds it
// and campaigns again when the lock was lost. It blocks.
//
//	           granted             fn has returned
//	campaign ------------> fn leads ----------------> Lead returns
//	 ^    |                   |
//	 |    | error that        | lock lost,
//	 |    | may pass          | fn has returned
//	 |    v                   |
//	 +-- pause <--------------+        when ctx ends, anywhere: Lead returns
//
// fn is called once for each term, on the caller's goroutine. Its context ends
// with the term: when ctx does, and when the lock is lost, with the [LostError]
// as its cause. fn must return then; the next campaign waits for that. Other
// candidates do not: they can lead as soon as the server has freed the lock. See
// [Lock] for how long two can believe that they lead, and package fencing for
// what keeps the older one from writing.
//
// Lead returns
//
//   - nil if fn returned nil and the lock was held until the unlock. There is
//     nothing left to lead.
//   - fn's error, joined with Unlock's. If fn returned nil, and only the unlock
//     found out that the lock was lost, it is the [LostError].
//   - An error that matches ctx's, and its cause, when ctx has ended. If this
//     was the leader, fn has returned and the lock is free by then; what fn
//     and Unlock returned is joined, and nil doesn't count.
//   - An error that matches ErrClosed when [Locker.Close] was called.
//   - At once, an error of the campaign that no waiting mends: ErrInvalidKey,
//     ErrPooler, ErrUnsupportedServer, a pool that is closed, and a server that
//     refuses the login, the database or the statement (SQLSTATE classes 0A, 28,
//     3D, 3F and 42, or what PgBouncer says instead). Before the first term ErrPoolExhausted too, so that a pool
//     that is too small for a program's locks shows when it starts; later it
//     means that others have taken the connection meanwhile, and is waited out.
//
// All other errors of a campaign may pass, such as those of a server that can't
// be reached, restarts or is a standby that is to be promoted. After the first
// failure in a row Lead pauses for 50 to 100 ms, after each further one for twice
// as long, up to 5 to 10 s. It also pauses after a loss, which counts as a failure
// in a row unless the term lasted longer than 10 s.
//
// If the lock was lost while fn ran, what fn returns is dropped, because it can't
// be told from what the loss led to. So is an error, but not nil, that fn
// returned before the loss was known if the unlock then finds it out. An fn that
// fails for reasons of its own does so again in its next term.
//
// If fn unlocks by itself, the rest of it runs without the lock, and what it
// returns ends Lead. If fn panics the lock is unlocked and the panic goes on.
func (l *Locker) Lead(ctx context.Context, key Key, fn func(context.Context, *Lock) error) error {
	return l.LeadIssuing(ctx, key, grant.Issue{}, fn)
}

// LeadIssuing is Lead for package fencing. Its third parameter's type is
// internal to this module.
func (l *Locker) LeadIssuing(ctx context.Context, key Key, issue grant.Issue, fn func(context.Context, *Lock) error) error {
	if ctx == nil {
		return wrap("lead", []Key{key}, errNilContext)
	}
	failures, hasLed := 0, false
	for {
		lock, err := l.acquire(ctx, "lock", &waiter{request: requestFor(key, false, issue), lead: true})
		switch {
		case err == nil:
			start := time.Now()
			var isLost bool
			if isLost, err = lead(ctx, lock, fn); !isLost {
				return err
			}
			hasLed = true
			if time.Since(start) > longestPause {
				failures = 0
			}
		case ctx.Err() != nil:
			return leadEnded(ctx, []Key{key}, err)
		case !passes(err, hasLed):
			return err
		}
		failures++
		if !l.pause(ctx, backoff(failures, rand.Float64())) {
			return leadEnded(ctx, []Key{key}, err)
		}
	}
}

// lead is one term. When it was lost there is to be another one, and err says
// how it was lost.
func lead(ctx context.Context, lock *Lock, fn func(context.Context, *Lock) error) (isLost bool, err error) {
	var result, atReturn error
	err = critical.Run(ctx, lock, func(ctx context.Context, lock *Lock) error {
		result = fn(ctx, lock)
		atReturn = lock.Err()
		return result
	})
	unlocked := lock.Unlock(ctx) // once more, for what it returned
	switch {
	case ctx.Err() != nil:
		return false, leadEnded(ctx, lock.Keys(), err)
	case errors.Is(atReturn, ErrLost):
		return true, atReturn
	case result != nil && errors.Is(unlocked, ErrLost):
		return true, unlocked
	default:
		return false, err
	}
}

// leadEnded is the error of a Lead whose ctx has ended, with what else is known.
func leadEnded(ctx context.Context, keys []Key, err error) error {
	if errors.Is(err, ctx.Err()) && errors.Is(err, context.Cause(ctx)) {
		return err // says it all
	}
	return errors.Join(wrap("lead", keys, ended(ctx)), err)
}

// passes reports whether an error of a campaign may be gone at the next one.
func passes(err error, hasLed bool) bool {
	switch {
	case errors.Is(err, ErrInvalidKey), errors.Is(err, ErrClosed),
		errors.Is(err, ErrPooler), errors.Is(err, ErrUnsupportedServer):
		return false
	case errors.Is(err, ErrPoolExhausted):
		return hasLed
	case errors.Is(err, errPoolClosed):
		return false
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || len(pgErr.Code) < 2 {
		return true
	}
	switch pgErr.Code[:2] {
	case "0A", "28", "3D", "3F", "42":
		return false
	default:
		return !isRefusedByPooler(pgErr)
	}
}

// isRefusedByPooler recognizes what PgBouncer refuses for good. Before its
// version 1.19 that has the code of a protocol violation, like all that it
// refuses for the moment, and only the text tells.
func isRefusedByPooler(err *pgconn.PgError) bool {
	return err.Code == "08P01" && slices.ContainsFunc(
		[]string{"authentication failed", "no such user", "no such database", "does not exist"},
		func(text string) bool { return strings.Contains(err.Message, text) })
}
