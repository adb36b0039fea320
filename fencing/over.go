package fencing

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/internal/election"
	"github.com/pgadvisory/pgadvisory/internal/lockerr"
)

// Mutex is a lock of another service, such as the Leaser of package redislease. Its
// errors match [advisory.ErrNotAcquired], from TryLock alone, when another holds the lock,
// and ctx's when ctx ends first. On an error no lock is kept. One with a method
// Permanent() bool that returns true, as for a login that is refused, ends [Fencer.Lead].
type Mutex[H Hold] interface {
	TryLock(ctx context.Context, resource string) (H, error)
	Lock(ctx context.Context, resource string) (H, error)
}

// Hold is one holding of a [Mutex].
type Hold interface {
	// Check asks the service whether it has the lock for this holder still. It returns
	// nil only if the service said so, and the holder may trust that.
	Check(ctx context.Context) error

	// Unlock, Done, Err and Context are as with [advisory.Lock]: errors of a loss match
	// [advisory.ErrLost], and Unlock works when ctx has ended.
	Unlock(ctx context.Context) error
	Done() <-chan struct{}
	Err() error
	Context(parent context.Context) (context.Context, context.CancelFunc)
}

// NewOver returns a Fencer whose locks mutex takes, in another service, and whose
// tokens PostgreSQL draws. Where that service comes to have two holders of a lock, as
// Redis does when a failover loses it, one of them can write to the guarded tables: the
// one that the service has. db is a pool or a connection to the database of the guarded
// tables; it is not used while a lock is held, and may be behind a pooler in transaction
// mode. A nil config means the defaults.
//
// To lock, a Fencer of NewOver reads the mark of the resource, takes the lock, draws a
// token if the mark is still the one that it read, and asks the service once more
// whether it has the lock. If another token was drawn meanwhile, it reads the mark, asks
// the service, and draws again. A plain draw would not do: a holder that was paused
// before it, and has lost the lock, would supersede the next one and then find out that
// it must not write, and nobody could. That takes four round trips, two to each.
//
// The promotion of a standby of PostgreSQL makes tokens of before stale, and does not end
// a lock that another service keeps: its holder finds out by [ErrStale], and locks anew.
//
// If a hold has a method SafeUntil() time.Time, [Lease.SafeUntil] returns what that does.
//
// These locks are not advisory locks. A session that holds the advisory lock of the
// resource, as the Fencer of [New] does, keeps a Fencer of NewOver from drawing tokens, but
// a lock of NewOver does not keep a session from locking: use one kind for a resource.
func NewOver[H Hold](mutex Mutex[H], db Querier, config *Config) (*Fencer, error) {
	switch db.(type) {
	case nil:
		return nil, errors.New("fencing: NewOver needs a database, and got nil")
	case pgx.Tx:
		return nil, errors.New("fencing: NewOver needs a pool or a connection, and got a transaction: a token is worth something once it is committed")
	}
	if any(mutex) == nil {
		return nil, errors.New("fencing: NewOver needs a mutex, and got nil")
	}
	return newFencer(&over[H]{mutex: mutex, db: db}, config)
}

// over are locks of another service.
type over[H Hold] struct {
	mutex Mutex[H]
	db    Querier
}

func (o *over[H]) lock(ctx context.Context, resource string, waits bool) (holding, error) {
	if resource == "" || strings.ContainsRune(resource, 0) || !utf8.ValidString(resource) {
		return holding{}, fmt.Errorf("fencing: lock %q: %w: the name of a resource is a text of PostgreSQL's, and not empty", resource, advisory.ErrInvalidKey)
	}
	seen, err := o.mark(ctx, resource)
	if err != nil {
		return holding{}, fmt.Errorf("fencing: lock %q: read the mark: %w", resource, err)
	}
	lock := o.mutex.TryLock
	if waits {
		lock = o.mutex.Lock
	}
	h, err := lock(ctx, resource)
	if err != nil {
		return holding{}, err
	}
	token, err := o.draw(ctx, h, resource, seen, waits)
	if err == nil {
		err = h.Check(ctx)
	}
	if err != nil {
		if unlocked := release(ctx, h); unlocked != nil && !errors.Is(err, advisory.ErrLost) {
			err = errors.Join(err, unlocked)
		}
		return holding{}, fmt.Errorf("fencing: lock %q: %w", resource, err)
	}
	return holding{lock: h, resource: resource, token: token}, nil
}

// release unlocks a hold for which no token was drawn. It waits no longer than ctx.
func release(ctx context.Context, h Hold) error {
	result := make(chan error, 1)
	// Ends with the unlock, which bounds itself.
	go func() { result <- h.Unlock(ctx) }()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return nil
	}
}

// draw draws a token for a hold. seen is the mark as it was before the lock was granted:
// the order is always to read the mark, to ask the service, and to draw.
func (o *over[H]) draw(ctx context.Context, h H, resource string, seen Token, waits bool) (Token, error) {
	for {
		var token *Token
		if err := one(ctx, o.db, &token, issueAfterSQL, resource, seen); err != nil {
			return 0, fmt.Errorf("draw a token: %w", err)
		}
		switch {
		case token == nil:
			var err error
			if seen, err = o.mark(ctx, resource); err != nil {
				return 0, fmt.Errorf("read the mark: %w", err)
			}
			if err := h.Check(ctx); err != nil {
				return 0, err
			}
		case *token > 0:
			return *token, nil
		default:
			if err := h.Err(); err != nil {
				return 0, err
			}
			if !waits {
				return 0, fmt.Errorf("%w: %s", advisory.ErrNotAcquired, blocker(*token))
			}
			if err := pauseDraw(ctx); err != nil {
				return 0, fmt.Errorf("%w while %s", err, blocker(*token))
			}
		}
	}
}

// noTable is the SQLSTATE of a query of a table that is not there.
const noTable = "42P01"

// mark is the token that was drawn last, or 0.
func (o *over[H]) mark(ctx context.Context, resource string) (mark Token, err error) {
	err = one(ctx, o.db, &mark, markSQL, resource)
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == noTable {
		err = fmt.Errorf("%w: run migrations.Up: %w", ErrNotInstalled, err)
	}
	return mark, err
}

// one reads the only value of a query.
func one(ctx context.Context, db Querier, value any, sql string, args ...any) error {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	if rows.Next() {
		if err := rows.Scan(value); err != nil {
			return err
		}
	}
	rows.Close()
	return rows.Err()
}

// blocker says what keeps a token from being drawn.
func blocker(answer Token) string {
	if answer < 0 {
		return fmt.Sprintf("a transaction in which an earlier holder has written is open in the session with the PID %d", -answer)
	}
	return "another session draws a token, holds the resource's advisory lock, or has locked the marks"
}

// drawPause is how long to wait before a draw is tried again, which itself waits for
// writers.
const drawPause = 20 * time.Millisecond

func pauseDraw(ctx context.Context) error {
	timer := time.NewTimer(drawPause/2 + rand.N(drawPause/2))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return lockerr.Ended(ctx)
	}
}

func (o *over[H]) lead(ctx context.Context, resource string, fn func(context.Context, holding) error) error {
	campaign := election.Campaign[term]{
		Lock: func(ctx context.Context) (term, error) {
			h, err := o.lock(ctx, resource, true)
			return term{h.lock, h}, Translate(err)
		},
		IsPassing: isPassingOver,
		Ended: func(ctx context.Context) error {
			return fmt.Errorf("fencing: lead %q: %w", resource, lockerr.Ended(ctx))
		},
	}
	return campaign.Run(ctx, func(ctx context.Context, t term) error { return fn(ctx, t.holding) })
}

// term is a holding as an election needs it.
type term struct {
	held
	holding holding
}

// permanent is an error of a [Mutex] that may say that no waiting mends it.
type permanent interface {
	error
	Permanent() bool
}

// isPassingOver reports whether an error of a campaign may be gone at the next one.
func isPassingOver(err error, _ bool) bool {
	if errors.Is(err, advisory.ErrInvalidKey) || errors.Is(err, advisory.ErrClosed) || errors.Is(err, ErrNotInstalled) {
		return false
	}
	if p, ok := errors.AsType[permanent](err); ok && p.Permanent() {
		return false
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return !ok || election.PassesSQLState(pgErr.Code)
}
