package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/connect"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/supervise"
	"github.com/pgadvisory/pgadvisory/fencing"
)

// What the process exits with. The numbers from 64 to 78 are those of
// sysexits.h; docs/command.md says what each means.
const (
	exitNo          = 1  // the answer is no: doctor and verify found something, kill had nothing to do
	exitUsage       = 64 // EX_USAGE
	exitUnavailable = 69 // EX_UNAVAILABLE: the server can't be reached, or has no room
	exitSystem      = 71 // EX_OSERR
	exitOutput      = 74 // EX_IOERR: stdout can't be written
	exitConflict    = 75 // EX_TEMPFAIL: somebody else holds the lock
	exitRefused     = 77 // EX_NOPERM: password, role, privilege
	exitConfig      = 78 // EX_CONFIG: settings with which no lock can be held, or nothing fenced
	exitLost        = 79 // the lock was lost while the command ran
	exitSignal      = 128
)

// failure is an error with the code to exit with.
type failure struct {
	code  int
	err   error               // nil if all was said
	raise supervise.Interrupt // before the exit
}

func (f *failure) Error() string {
	if f.err == nil {
		return fmt.Sprintf("exit status %d", f.code)
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

func usage(format string, args ...any) error {
	return &failure{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// interrupted is the cause of a context that a signal has ended.
type interrupted struct{ signal os.Signal }

func (i interrupted) Error() string { return "ended by " + supervise.Name(i.signal) }

// code is what to exit with for an error.
func code(err error) int {
	var (
		known  *failure
		signal interrupted
	)
	switch {
	case err == nil:
		return 0
	case errors.As(err, &known):
		return known.code
	case errors.As(err, &signal):
		return exitSignal + supervise.Number(signal.signal)
	case errors.Is(err, advisory.ErrNotAcquired):
		return exitConflict
	case errors.Is(err, connect.ErrPassword), errors.Is(err, advisory.ErrInvalidKey):
		return exitUsage
	case isMisconfigured(err):
		return exitConfig
	default:
		return codeOfServer(err)
	}
}

func isMisconfigured(err error) bool {
	if connect.IsTLS(err) {
		return true
	}
	for _, target := range []error{
		connect.ErrConfig, advisory.ErrPooler, advisory.ErrStandby, advisory.ErrUnsupportedServer,
		advisory.ErrLimitDiffers, fencing.ErrNotInstalled,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// codeOfServer goes by the class of the SQLSTATE (manual, appendix A).
func codeOfServer(err error) int {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return exitUnavailable
	}
	var connecting *pgconn.ConnectError
	atConnect := errors.As(err, &connecting)
	switch {
	case len(pg.Code) != 5:
		return exitNo
	case pg.Code == "42501" || pg.Code[:2] == "28":
		return exitRefused
	case atConnect && (pg.Code == "08P01" || slices.Contains([]string{"0A", "22", "42"}, pg.Code[:2])):
		// A setting of the connection that the server, or a pooler, does not
		// take: 42704 for one that there is not, 22023 for a wrong value.
		return exitConfig
	case pg.Code[:2] == "57", pg.Code[:2] == "53", pg.Code[:2] == "08", pg.Code[:2] == "58":
		return exitUnavailable
	case pg.Code[:2] == "3D":
		return exitConfig
	default:
		return exitNo // the server refuses what was asked for, and says why
	}
}

// advice is what to do about an error, beyond what it says; or nothing.
func advice(err error) string {
	var pg *pgconn.PgError
	_ = errors.As(err, &pg)
	switch {
	case errors.Is(err, fencing.ErrNotInstalled):
		return "install it with: pgadvisory migrate up"
	case errors.Is(err, advisory.ErrPooler):
		return "a pooler in session mode is allowed with --session-pooler; what is wrong here, pgadvisory doctor says"
	case errors.Is(err, advisory.ErrLimitDiffers):
		return "all who use one name have to give the same --limit"
	case errors.Is(err, context.DeadlineExceeded):
		return ""
	case pg == nil:
		return ""
	case pg.Code == "28P01":
		return "the password comes from PGPASSWORD, the password file (~/.pgpass) or DATABASE_URL"
	case pg.Code == "42501" && strings.Contains(pg.Message, "fencing"):
		return "the schema's owner can run: pgadvisory grant ROLE"
	default:
		return pg.Hint
	}
}
