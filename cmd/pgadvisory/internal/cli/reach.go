package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/connect"
)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// withWait is a context that ends with --wait.
func (r *runner) withWait(ctx context.Context) (context.Context, context.CancelFunc) {
	if r.options.wait.Duration == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, r.options.wait.Duration, errTimeIsUp)
}

// waitsFor reports whether a server is waited for that open could not reach: with
// --wait, and by a leader.
func (r *runner) waitsFor(ctx context.Context, err error) bool {
	return (r.options.lead || r.options.wait.Duration > 0) && ctx.Err() == nil && r.mayPass(err)
}

// reopen is open again and again, after an error of it, until ctx ends.
func (r *runner) reopen(ctx context.Context, last error) (*pgxpool.Pool, error) {
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		r.awaitServer(last)
		rest(ctx, pause)
		pool, err := r.open(ctx)
		switch {
		case err == nil:
			return pool, nil
		case ctx.Err() != nil:
			return nil, fmt.Errorf("gave up after %v of waiting for the server: %w", r.options.wait.Duration, last)
		case !r.mayPass(err):
			return nil, err
		}
		last = err
	}
}

// open connects, and remembers the connection for the watchdog.
func (r *runner) open(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := connect.Config(r.app.dsn)
	if err != nil {
		return nil, err
	}
	r.application = config.ConnConfig.RuntimeParams["application_name"]
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		socket, err := connect.Socket(conn.PgConn().Conn())
		if err == nil {
			r.conn.Store(&socket)
		}
		return err
	}
	return connect.Open(ctx, config)
}

// awaitServer says what is waited for, once for each reason.
func (r *runner) awaitServer(err error) {
	if text := message(err); text != r.awaited {
		r.awaited = text
		r.say(text + "\nwaiting for the server")
	}
}

// rest returns after about a pause, or when ctx ends.
func rest(ctx context.Context, pause time.Duration) {
	select {
	case <-time.After(pause/2 + rand.N(pause/2)):
	case <-ctx.Done():
	}
}

// mayPass is the function of that name. A leader also waits for a standby to be
// promoted, as Locker.Lead does.
func (r *runner) mayPass(err error) bool {
	return r.options.lead && errors.Is(err, advisory.ErrStandby) || mayPass(err)
}

// mayPass reports whether an error means that the server is shutting down, starting
// up or unreachable. Other errors are about the request itself.
func mayPass(err error) bool {
	var (
		pg      *pgconn.PgError
		connect *pgconn.ConnectError
		network net.Error
	)
	switch {
	case isMisconfigured(err):
		return false
	case errors.As(err, &pg):
		return codeOfServer(err) == exitUnavailable
	case errors.As(err, &connect), errors.As(err, &network):
		return true
	}
	for _, target := range []error{
		advisory.ErrLost, pgconn.ErrConnClosed, io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, context.DeadlineExceeded,
	} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
