package lockproto

import (
	"errors"
	"fmt"
)

// Status is what the server has answered.
type Status int

const (
	// Refused means that the session holds nothing, and its settings are as they were.
	Refused Status = iota
	// Waiting means that a wait ended in vain. The session has its name and its settings,
	// and holds the first [Answer.Held] locks.
	Waiting
	// Seated means that the session has its name and its settings, and holds a seat at the
	// lock: it is to wait with a Script.
	Seated
	// Parked means that enough other sessions wait for the lock on the server. The
	// session has its name and its settings, holds nothing, and is to Poll after a pause.
	Parked
	// Granted means that the session holds all locks, has its name and its settings, and
	// [Answer.Receipt] is made.
	Granted
	// Blocked is Granted without the receipt, which a transaction of another session
	// keeps from being made.
	Blocked
	// Differs means that the semaphore is in use with another limit, [Answer.Limit].
	// The session holds nothing, and its settings are as they were.
	Differs
	// Changed means that nothing was done: other code has changed the session's settings
	// since the probe. The session has to be probed again.
	Changed
	// Unfit means that nothing was done: an Issue needs a transaction with other
	// settings, which Script makes.
	Unfit
)

// Answer is what the server has answered.
type Answer struct {
	Status  Status
	Held    int   // with Waiting
	Receipt int64 // of the Issue; with Blocked the negated PID that blocks it, or 0
	Slot    int   // of the semaphore
	Limit   int   // with Differs
	Near    bool  // with Parked: the session is one of the few that are to Poll often
}

// wrongAnswerError is an answer that is none of those above.
type wrongAnswerError struct{ error }

func (e wrongAnswerError) Unwrap() error { return e.error }

func wrongAnswer(format string, args ...any) error {
	return wrongAnswerError{fmt.Errorf(format, args...)}
}

// IsWrongAnswer reports whether the server did answer, with something that can't be.
func IsWrongAnswer(err error) bool {
	_, ok := errors.AsType[wrongAnswerError](err)
	return ok
}
