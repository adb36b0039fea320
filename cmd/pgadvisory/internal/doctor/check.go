package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/connect"
)

// limit bounds the whole.
const limit = 30 * time.Second

// probe is the name of the lock that is taken.
const probe = "pgadvisory doctor"

// Check connects and looks. It always returns something; what it can't go on
// after is the last finding. An error means that ctx has ended.
func Check(ctx context.Context, config *pgxpool.Config, sessionPooler bool) (Report, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var r Report
	pool, err := connect.Open(ctx, config)
	if err != nil {
		r.problem(connectFix(err), "no connection: %v", connect.Describe(err))
		if errors.Is(ctx.Err(), context.Canceled) {
			return r, ctx.Err()
		}
		return r, nil
	}
	defer pool.Close()
	c := config.ConnConfig
	r.ok("connected to database %s at %s as %s", c.Database, address(c), c.User)
	var w *route
	for _, look := range []func(context.Context, *Report, *pgxpool.Pool) error{
		func(ctx context.Context, _ *Report, pool *pgxpool.Pool) (err error) {
			w, err = findRoute(ctx, pool)
			return err
		},
		func(ctx context.Context, r *Report, pool *pgxpool.Pool) error {
			return lock(ctx, r, pool, w, sessionPooler)
		},
		reading(server), reading(engine),
		reading(func(ctx context.Context, r *Report, db pgx.Tx) error { return vanishing(ctx, r, db, w) }),
		reading(room), reading(role),
		reading(schema), reading(epoch), reading(eventTriggers), reading(guards),
	} {
		switch err := look(ctx, &r, pool); {
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			r.problem("see whether the server is overloaded, or the network loses packets", "the server did not answer all questions within %v", limit)
			return r, nil
		case ctx.Err() != nil:
			return r, ctx.Err()
		case errors.Is(err, errStop):
			return r, nil
		case err != nil:
			r.problem("see what the server says, and its log", "the server does not answer a question: %v", err)
			return r, nil
		}
	}
	return r, nil
}

// reading has something looked at in a transaction of [connect.Read].
func reading(look func(context.Context, *Report, pgx.Tx) error) func(context.Context, *Report, *pgxpool.Pool) error {
	return func(ctx context.Context, r *Report, pool *pgxpool.Pool) error {
		return connect.Read(ctx, pool, func(tx pgx.Tx) error { return look(ctx, r, tx) })
	}
}

// errStop is returned after a finding that makes the rest pointless.
var errStop = errors.New("stop")

func address(c *pgx.ConnConfig) string {
	if strings.HasPrefix(c.Host, "/") {
		return "the socket in " + c.Host
	}
	return fmt.Sprintf("%s:%d", c.Host, c.Port)
}

func connectFix(err error) string {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return "start the server, or correct PGHOST and PGPORT or DATABASE_URL; see pg_isready"
	}
	switch {
	case pg.Code == "28P01":
		return "give the password by PGPASSWORD, the password file (~/.pgpass) or DATABASE_URL"
	case strings.HasPrefix(pg.Code, "28"):
		return "correct the role, or let it in with a line in pg_hba.conf"
	case pg.Code == "3D000":
		return "correct PGDATABASE or DATABASE_URL, or create the database"
	case pg.Code == "53300":
		return "raise max_connections, or the limit of the role or the database, or end sessions that idle"
	case strings.HasPrefix(pg.Code, "57"):
		return "wait until the server is up"
	default:
		return "see the server's log"
	}
}

// lock takes one, as a holder would, and gives it back.
func lock(ctx context.Context, r *Report, pool *pgxpool.Pool, w *route, sessionPooler bool) error {
	locker, err := advisory.New(pool, &advisory.Config{Reserve: advisory.NoReserve, SessionPooler: sessionPooler})
	if err != nil {
		return err
	}
	defer func() { _ = locker.Close(ctx) }()
	start := time.Now()
	// The second meets a session that is known, as most do.
	for range 2 {
		start = time.Now()
		held, err := locker.TryLock(ctx, advisory.Name(probe))
		if errors.Is(err, advisory.ErrNotAcquired) {
			r.note("run this once at a time", "the lock %q is held: another doctor is at work", probe)
			return nil
		}
		if err == nil {
			err = held.Unlock(ctx)
		}
		if errors.Is(err, advisory.ErrPooler) {
			w.refusal(r)
			return errStop
		}
		if err != nil {
			r.problem(lockFix(err), "no lock can be held: %v", strings.TrimPrefix(err.Error(), "advisory: "))
			return errStop
		}
	}
	r.ok("a lock can be held; taking and freeing one took %v", time.Since(start).Round(10*time.Microsecond))
	if sessionPooler {
		w.allowance(r)
	}
	return nil
}

func lockFix(err error) string {
	switch {
	case errors.Is(err, advisory.ErrStandby):
		return "connect to the primary: list all hosts in PGHOST and set PGTARGETSESSIONATTRS=read-write"
	case errors.Is(err, advisory.ErrUnsupportedServer):
		return "use PostgreSQL 13 or later"
	case errors.Is(err, advisory.ErrLockTableFull):
		return "raise max_locks_per_transaction and restart the server"
	case errors.Is(err, advisory.ErrLost):
		return "see the server's log for why it has ended the session"
	default:
		return "let the role execute the functions pg_advisory_*: GRANT EXECUTE ON FUNCTION pg_catalog.pg_try_advisory_lock(bigint) TO ..."
	}
}
