package advisory

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/internal/election"
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
	return l.lead(ctx, key, grant.Issue{}, fn)
}

func (l *Locker) lead(ctx context.Context, key Key, issue grant.Issue, fn func(context.Context, *Lock) error) error {
	if ctx == nil {
		return wrap("lead", []Key{key}, errNilContext)
	}
	campaign := election.Campaign[*Lock]{
		Lock: func(ctx context.Context) (*Lock, error) {
			w := issuingWaiter(key, false, issue)
			w.lead = true
			return l.acquireOne(ctx, "lock", w)
		},
		IsPassing: passes,
		Closing:   l.closing,
		Ended:     func(ctx context.Context) error { return wrap("lead", []Key{key}, ended(ctx)) },
	}
	return campaign.Run(ctx, fn)
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
	return !ok || election.PassesSQLState(pgErr.Code) && !isRefusedByPooler(pgErr)
}

// isRefusedByPooler recognizes what PgBouncer refuses for good. Before its
// version 1.19 that has the code of a protocol violation, like all that it
// refuses for the moment, and only the text tells.
func isRefusedByPooler(err *pgconn.PgError) bool {
	return err.Code == "08P01" && slices.ContainsFunc(
		[]string{"authentication failed", "no such user", "no such database", "does not exist"},
		func(text string) bool { return strings.Contains(err.Message, text) })
}
