package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/connect"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/supervise"
)

// runner is one run.
type runner struct {
	app     *app
	options runOptions
	name    string
	command []string
	errOut  io.Writer

	signals *supervise.Signals
	locker  *advisory.Locker
	conn    atomic.Pointer[syscall.Conn] // that of the pool, which has one
}

// run takes these steps, of which the first are done while the next is under way:
//
//	listen for signals, start the watchdog, connect, wait for the lock,
//	run the command, end what it left, free the lock
func (r *runner) run(parent context.Context) error {
	path, missing, err := supervise.Find(r.command[0])
	if err != nil {
		return &failure{code: missing, err: err}
	}
	r.signals = supervise.Listen()
	defer r.signals.Stop()
	group, err := supervise.NewGroup()
	if err != nil {
		return &failure{code: exitSystem, err: err}
	}
	defer group.Close()

	start := time.Now()
	h, pool, err := r.grant(parent)
	if pool != nil {
		defer closePool(pool)
	}
	if err != nil {
		return r.notGranted(err)
	}
	defer r.closeLocker()
	r.tell("holding %s after %v", h.what, time.Since(start).Round(time.Millisecond))

	if err := group.Hold(*r.conn.Load()); err != nil {
		_ = h.lock.Unlock(parent)
		return &failure{code: exitSystem, err: err}
	}
	stopMarking := r.mark(h.lock)
	result, startCode, startErr := group.Run(supervise.Command{
		Path: path, Args: r.command, Env: append(os.Environ(), h.env...),
		Grace: r.options.grace.Duration, Log: r.say,
	}, r.signals, h.lock.Done())
	stopMarking()
	loss := h.lock.Err()
	unlockErr := h.lock.Unlock(parent)
	if loss == nil {
		loss = unlockErr
	}
	switch {
	case errors.Is(loss, advisory.ErrLost):
		return r.lost(loss, result, startErr)
	case startErr != nil:
		return &failure{code: startCode, err: startErr}
	case unlockErr != nil:
		r.say(message(unlockErr)) // held until then, and freed with the session
	}
	r.tell("freed %s", h.what)
	return &failure{code: result.Code, raise: result.Interrupt}
}

// grant connects and waits until the lock is held, a signal comes or the time is
// up. The pool is returned as soon as there is one.
func (r *runner) grant(parent context.Context) (held, *pgxpool.Pool, error) {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	var pool *pgxpool.Pool
	type answer struct {
		held
		err error
	}
	granted := make(chan answer, 1)
	// Ends when the lock is granted, or soon after ctx has.
	go func() {
		var a answer
		if pool, a.err = r.open(ctx); a.err == nil {
			a.held, a.err = r.acquire(ctx, pool)
		}
		granted <- a
	}()
	var a answer
	select {
	case a = <-granted:
	case sig := <-r.signals.C:
		cancel(interrupted{sig})
		a = <-granted
	}
	// One that came with the grant is not left to the command, which would
	// have to be started for it.
	select {
	case sig := <-r.signals.C:
		cancel(interrupted{sig})
	default:
	}
	if cause := context.Cause(ctx); cause != nil {
		a.err = cause
	}
	if a.err != nil && a.lock != nil {
		_ = a.lock.Unlock(parent) // the news is the signal
	}
	if a.err != nil && r.locker != nil {
		r.closeLocker()
	}
	return a.held, pool, a.err
}

// open connects, and remembers the connection for the watchdog.
func (r *runner) open(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := connect.Config(r.app.dsn)
	if err != nil {
		return nil, err
	}
	config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		socket, err := connect.Socket(conn.PgConn().Conn())
		if err == nil {
			r.conn.Store(&socket)
		}
		return err
	}
	return connect.Open(ctx, config)
}

// closeLocker waits until the server has taken back what a wait that was given up
// may still get.
func (r *runner) closeLocker() {
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = r.locker.Close(ctx)
}

func (r *runner) notGranted(err error) error {
	if errors.Is(err, advisory.ErrNotAcquired) || errors.Is(err, errTimeIsUp) {
		if !r.options.quiet {
			r.say(message(err))
		}
		return &failure{code: r.options.conflictCode}
	}
	return reported{err}
}

func (r *runner) lost(loss error, result supervise.Result, startErr error) error {
	text := message(loss)
	switch {
	case startErr != nil:
		text += "\nthe command was not started: " + startErr.Error()
	case result.Signal != nil:
		text += fmt.Sprintf("\nthe command was ended by %v", result.Signal)
	default:
		text += fmt.Sprintf("\nthe command has ended with status %d", result.Code)
	}
	return &failure{code: exitLost, err: errors.New(text)}
}

func (r *runner) say(text string) { say(r.errOut, text) }

func (r *runner) tell(format string, args ...any) {
	if r.options.verbose {
		r.say(fmt.Sprintf(format, args...))
	}
}

// printable is the lock's name for messages.
func (r *runner) printable() string {
	if strings.ContainsAny(r.name, " \t\n\"") {
		return fmt.Sprintf("%q", r.name)
	}
	return r.name
}
