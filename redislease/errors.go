package redislease

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pgadvisory/pgadvisory/internal/lockerr"
)

// Test for these with errors.Is: they come wrapped with the resource and the cause.
// The first five also match those of package advisory with the same names, and
// ErrInvalidResource its ErrInvalidKey.
var (
	// ErrNotAcquired is returned by TryLock and TryDo when another holds the lock.
	ErrNotAcquired error = &sentinel{"redislease: not acquired", lockerr.ErrNotAcquired}

	// ErrUnlocked is what [Lease.Err] says, and the cause of a [Lease.Context]'s end,
	// once Unlock has ended the hold.
	ErrUnlocked error = &sentinel{"redislease: unlocked", lockerr.ErrUnlocked}

	// ErrLost is matched by every [LostError].
	ErrLost error = &sentinel{"redislease: lease lost", lockerr.ErrLost}

	// ErrNotOwner is the cause of a [LostError] when Redis said that the lease was gone
	// or another's, and is returned by the methods of a Lease that is nil.
	ErrNotOwner error = &sentinel{"redislease: not the owner of the lock", lockerr.ErrNotOwner}

	// ErrClosed is returned by the locking methods once [Leaser.Close] was called, also
	// to those that were waiting then; by Unlock and [Lease.Err] if Close has unlocked.
	ErrClosed error = &sentinel{"redislease: closed", lockerr.ErrClosed}

	// ErrUnavailable is returned by the locking methods and Unlock when Redis could not
	// be reached, did not answer in time or refused: what it said is wrapped. No lease
	// is kept.
	ErrUnavailable = errors.New("redislease: Redis is unavailable")

	// ErrInvalidResource is returned by the locking methods for a name that can't be
	// one.
	ErrInvalidResource error = &sentinel{"redislease: invalid resource", lockerr.ErrInvalidKey}

	// ErrStale is matched by every [StaleError].
	ErrStale = errors.New("redislease: stale token")
)

// sentinel is an error that is also that of another package.
type sentinel struct {
	text string
	same error
}

func (s *sentinel) Error() string { return s.text }
func (s *sentinel) Unwrap() error { return s.same }

// LostReason says why a lease was lost.
type LostReason string

const (
	// LostExpired means that no renewal succeeded in time. Redis lets go a moment
	// later, and may still hold the lock for this owner then.
	LostExpired LostReason = "expired"
	// LostTaken means that Redis holds the lock for another owner.
	LostTaken LostReason = "taken"
	// LostMissing means that Redis holds the lock for nobody: it ended by its TTL, was
	// deleted, or a restart or failover lost it.
	LostMissing LostReason = "missing"
	// LostMaxHold means that [Config.MaxHold] has ended it.
	LostMaxHold LostReason = "held for the longest time allowed"
)

// LostError says that a lock was not certainly held until Unlock. It matches
// [ErrLost], and the errors of Cause.
type LostError struct {
	Resource string
	Reason   LostReason
	Cause    error
}

// Error describes the loss.
func (e *LostError) Error() string {
	text := fmt.Sprintf("%slock %q lost (%s)", prefix, e.Resource, e.Reason)
	if e.Cause != nil {
		text += ": " + strings.TrimPrefix(e.Cause.Error(), prefix)
	}
	return text
}

// Is reports whether target is [ErrLost], or that of package advisory.
func (e *LostError) Is(target error) bool { return target == ErrLost || target == lockerr.ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// prefix begins each error of this package, once.
const prefix = "redislease: "

func wrap(verb, resource string, err error) error {
	return &callError{verb, resource, err}
}

// callError is the error of a call for a resource.
type callError struct {
	verb, resource string
	err            error
}

func (e *callError) Error() string {
	return fmt.Sprintf("%s%s %q: %s", prefix, e.verb, e.resource, strings.TrimPrefix(e.err.Error(), prefix))
}

func (e *callError) Unwrap() error { return e.err }

// Permanent reports whether no waiting mends the error, which ends Lead, also that of a
// Fencer.
func (e *callError) Permanent() bool { return !isPassing(e.err) }

// unavailable says what an error of Redis, or on the way to it, means.
func unavailable(err error) error {
	if redis.IsPermissionError(err) {
		return fmt.Errorf("%w: the user needs EVAL, EVALSHA and the commands of the scripts, on all keys that begin with the prefix: %w", ErrUnavailable, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// isPassing reports whether an error of a campaign may be gone at the next one.
func isPassing(err error) bool {
	return !errors.Is(err, ErrClosed) && !errors.Is(err, ErrInvalidResource) && !errors.Is(err, redis.ErrClosed) &&
		!redis.IsPermissionError(err) && !redis.IsAuthError(err)
}

// errTooLate is an answer that grants a lease which is over.
var errTooLate = errors.New("the answer came too late")

func tooLate(took, trusted time.Duration) error {
	return fmt.Errorf("%w: %w: it took %s, and a lease is trusted for %s", ErrUnavailable, errTooLate, took, trusted)
}
