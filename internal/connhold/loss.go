package connhold

import (
	"errors"

	"github.com/jackc/pgx/v5/pgconn"
)

// Reason says how a session was found dead.
type Reason string

const (
	// Terminated means that the server said that it ends the session, for
	// example after pg_terminate_backend, a shutdown or idle_session_timeout.
	Terminated Reason = "terminated"
	// Disconnected means that the connection was closed or reset.
	Disconnected Reason = "disconnected"
	// Unresponsive means that the server did not answer in time.
	Unresponsive Reason = "unresponsive"
	// OtherBackend means that a pooler had another backend answer a heartbeat.
	OtherBackend Reason = "other backend"
)

// Loss is the death of a watched session.
type Loss struct {
	Reason Reason
	Cause  error
}

// LossFrom says what an error of the session's traffic means for the session:
// nil when it is the server's answer to a statement, after which the session
// lives on, or the panic of a handler.
func LossFrom(err error) *Loss {
	if _, ok := errors.AsType[*PanicError](err); ok {
		return nil
	}
	if pgconn.Timeout(err) {
		return &Loss{Reason: Unresponsive, Cause: err}
	}
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return &Loss{Reason: Disconnected, Cause: err}
	}
	switch pgErr.SeverityUnlocalized {
	case "FATAL", "PANIC":
		return &Loss{Reason: Terminated, Cause: err}
	default:
		return nil
	}
}

// lossFromRead is the loss when a read of an idle session fails, where no
// statement is there to be answered.
func lossFromRead(err error) *Loss {
	if loss := LossFrom(err); loss != nil {
		return loss
	}
	return &Loss{Reason: Terminated, Cause: err}
}
