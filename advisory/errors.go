package advisory

import (
	"errors"
	"fmt"
	"strings"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/lockerr"
)

// Test for these with errors.Is: they come wrapped with the key and the cause.
var (
	// ErrNotAcquired is returned by TryLock and TryDo when the lock is held, by
	// another session or by this Locker, or is asked for by a call of this
	// Locker that came first.
	ErrNotAcquired = lockerr.ErrNotAcquired

	// ErrUnlocked is what [Lock.Err] says, and the cause of a
	// [Lock.Context]'s end, once Unlock has ended the hold.
	ErrUnlocked = lockerr.ErrUnlocked

	// ErrLost is matched by every [LostError]: the session that held the lock
	// ended before Unlock, and another may have held the lock since.
	ErrLost = lockerr.ErrLost

	// ErrNotOwner is returned by Unlock when the session lives but did not
	// hold the lock any more (the error is a [LostError] then), and by the
	// methods of a Lock that is nil or was not made by a Locker.
	ErrNotOwner = lockerr.ErrNotOwner

	// ErrPoolExhausted is returned by the locking methods when the Locker
	// would have to take a connection that [Config.Reserve] leaves to others,
	// and when ctx ends while the pool has no connection to give.
	ErrPoolExhausted = errors.New("advisory: pool exhausted")

	// ErrPooler is returned by the locking methods when a pooler is between
	// the pool and the server that does not keep sessions, or that
	// [Config.SessionPooler] does not allow. A [LostError] matches it if a
	// heartbeat found that out while the lock was held.
	ErrPooler = errors.New("advisory: no session behind the pooler")

	// ErrStandby is returned by the locking methods when the pool connects to
	// a standby. Its locks are its own.
	ErrStandby = lockerr.ErrStandby

	// ErrUnsupportedServer is returned by the locking methods when the pool
	// connects to an engine whose advisory locks lock nothing, or to a server
	// that is too old.
	ErrUnsupportedServer = lockerr.ErrUnsupportedServer

	// ErrLockTableFull is returned by the locking methods when the server has
	// no room for one more lock. Nothing is kept.
	ErrLockTableFull = errors.New("advisory: the server's lock table is full")

	// ErrLimitDiffers is returned by a Semaphore's methods while somebody uses
	// the same name with another limit.
	ErrLimitDiffers = errors.New("advisory: the semaphore's limit differs")

	// ErrInvalidKey is returned by the locking methods for a Key that can't
	// name a lock.
	ErrInvalidKey = lockerr.ErrInvalidKey

	// ErrClosed is returned by the locking methods once [Locker.Close] was
	// called, also to those that were waiting then, and by those of a Session
	// that was closed; by Unlock and [Lock.Err] if Close has unlocked.
	ErrClosed = lockerr.ErrClosed
)

// errTxRuns: unlocking could not wait for a transaction.
var errTxRuns = errors.New("a transaction was still running on the session, which was ended")

// txRunsLoss is what that means for the other locks of the session.
var txRunsLoss = &connhold.Loss{Reason: connhold.Disconnected, Cause: errTxRuns}

// errTxTooLong: a transaction was not over in time.
var errTxTooLong = errors.New("a transaction on the session took longer than Config.TxTimeout")

// errNoReturn: the function of a transaction has not returned.
var errNoReturn = errors.New("the transaction's function did not return")

// errConnecting: a ctx ended while its call waited for a connection.
var errConnecting = errors.New("waiting for a connection")

// errDiedInTx is the cause of a loss that a transaction found; its own error says
// more.
var errDiedInTx = errors.New("the connection was closed during a transaction")

// LostReason says how the loss of a lock was found out.
type LostReason string

const (
	// LostTerminated means that the server ended the session and said so, for
	// example after pg_terminate_backend, at a shutdown or by
	// idle_session_timeout.
	LostTerminated = LostReason(connhold.Terminated)
	// LostDisconnected means that the connection was closed or reset.
	LostDisconnected = LostReason(connhold.Disconnected)
	// LostUnresponsive means that the server did not answer a heartbeat, the
	// unlock, or the BEGIN, COMMIT or ROLLBACK of a [Lock.Tx] in time, or that
	// this took longer than [Config.TxTimeout]. The server's session may live on
	// for a while and hold the lock.
	LostUnresponsive = LostReason(connhold.Unresponsive)
	// LostPooler means that another backend than the one that holds the lock
	// answered a heartbeat: the pooler does not keep the session, and may have
	// lent the lock with its backend. The error matches [ErrPooler].
	LostPooler = LostReason(connhold.OtherBackend)
	// LostNotHeld means that the session lives and said at unlock that it did
	// not hold the lock, which something else must have released on it.
	LostNotHeld LostReason = "not held"
)

// LostError says that a lock was not held continuously until Unlock. It
// matches [ErrLost], and the errors of Cause.
type LostError struct {
	Keys   []Key
	Reason LostReason
	Cause  error
}

// Error describes the loss.
func (e *LostError) Error() string {
	return fmt.Sprintf("%slock %s lost (%s): %s", prefix, list(e.Keys), e.Reason, bare(e.Cause))
}

// Is reports whether target is [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the cause.
func (e *LostError) Unwrap() error { return e.Cause }

// lostBy makes the error of a loss; keys is nil for that of a whole Session.
func lostBy(keys []Key, loss *connhold.Loss) *LostError {
	cause := loss.Cause
	if loss.Reason == connhold.OtherBackend {
		cause = fmt.Errorf("%w: %w; the pooler must be in session mode", ErrPooler, cause)
	}
	return &LostError{Keys: keys, Reason: LostReason(loss.Reason), Cause: cause}
}

// unlockError says what an unlock that failed means. An error that leaves the
// session alive, such as a cancelled statement, is no loss: the lock was held
// until the session was ended instead.
func unlockError(keys []Key, err error) error {
	loss := connhold.LossFrom(err)
	if loss == nil {
		return wrap("unlock", keys, fmt.Errorf("the session was ended instead: %w", err))
	}
	return lostBy(keys, loss)
}

// prefix begins each error of this package, once.
const prefix = "advisory: "

func bare(err error) string { return strings.TrimPrefix(err.Error(), prefix) }

// callError is the error of a call for keys.
type callError struct {
	verb string
	keys []Key
	err  error
}

func wrap(verb string, keys []Key, err error) error { return &callError{verb, keys, err} }

func (e *callError) Error() string {
	return fmt.Sprintf("%s%s %s: %s", prefix, e.verb, list(e.keys), bare(e.err))
}

func (e *callError) Unwrap() error { return e.err }

// list names the first of several keys.
func list(keys []Key) string {
	switch len(keys) {
	case 0:
		return "session"
	case 1:
		return keys[0].String()
	default:
		return fmt.Sprintf("%s and %d more", keys[0], len(keys)-1)
	}
}
