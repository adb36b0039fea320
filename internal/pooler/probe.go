package pooler

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Verdict says whether sessions are kept.
type Verdict int

const (
	// Undecided means that there was no second connection to probe with.
	Undecided Verdict = iota
	// Kept means that nothing spoke against it in any round.
	Kept
	// Lent is a proof that backends are lent.
	Lent
)

// Finding is what a probe found.
type Finding struct {
	Verdict Verdict
	// Evidence says what was seen, as a clause of a sentence.
	Evidence string
}

// rounds is how often the two connections ask. With three, up to 5 % of the probes
// of a busy pooler missed that it lends backends.
const rounds = 10

// Probe finds out whether the session of an idle connection is kept. pid is what
// its backend told. first runs a query there and returns the row; dial makes the
// second connection, and limit bounds that and all that is done with it.
//
// An error is one of first's.
func Probe(ctx context.Context, pid uint32, first func(sql string) ([]string, error),
	dial func(context.Context) (*pgconn.PgConn, error), limit time.Duration,
) (Finding, error) {
	before, err := backendOf(first(backendSQL))
	if err != nil {
		return Finding{}, err
	}
	if before.pid != strconv.FormatUint(uint64(pid), 10) {
		return lent("statements of one connection ran on the backends %d and %s", pid, before.pid), nil
	}
	second, err := open(ctx, dial, limit)
	if err != nil {
		return undecided("a second connection failed: %w", err), nil
	}
	defer second.close()
	for range rounds {
		other, err := backendOf(second.ask("BEGIN; " + backendSQL))
		switch {
		case isStatementMode(err):
			return lent("a second connection was refused a transaction: %w", err), nil
		case err != nil:
			return undecided("a second connection got no backend: %w", err), nil
		case other == before:
			return lent("two open connections had the same backend %s", before.pid), nil
		}
		during, err := backendOf(first(backendSQL))
		if err != nil {
			return Finding{}, err
		}
		if _, err := second.ask("ROLLBACK"); err != nil {
			return undecided("a second connection was lost: %w", err), nil
		}
		after, err := backendOf(first(backendSQL))
		if err != nil {
			return Finding{}, err
		}
		for _, now := range []backend{during, after} {
			if now != before {
				return lent("statements of one connection ran on the backends %s and %s", before.pid, now.pid), nil
			}
		}
	}
	return Finding{Kept, fmt.Sprintf("in %d rounds one connection kept its backend while a second one had others", rounds)}, nil
}

func lent(format string, args ...any) Finding {
	return Finding{Lent, fmt.Errorf(format, args...).Error()}
}

func undecided(format string, args ...any) Finding {
	return Finding{Undecided, fmt.Errorf(format, args...).Error()}
}

// isStatementMode recognizes how PgBouncer refuses BEGIN in that mode.
func isStatementMode(err error) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && strings.Contains(pgErr.Message, "statement pooling mode")
}

// backend tells a server process from all others, of other servers too.
type backend struct{ pid, serverStart string }

func backendOf(row []string, err error) (backend, error) {
	if err == nil && len(row) != 2 {
		err = fmt.Errorf("the server answered with %d columns", len(row))
	}
	if err != nil {
		return backend{}, err
	}
	return backend{row[0], row[1]}, nil
}
