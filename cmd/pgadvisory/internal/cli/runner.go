package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/lockview"
	"github.com/pgadvisory/pgadvisory/cmd/pgadvisory/internal/supervise"
)

// runner is one run, or one lead.
type runner struct {
	app     *app
	options runOptions
	errOut  io.Writer
	path    string // of the command

	signals     *supervise.Signals
	locker      *advisory.Locker
	application string
	awaited     string                       // the last that was said of a server that is waited for
	conn        atomic.Pointer[syscall.Conn] // that of the pool, which has one
}

func (a *app) runner(cmd *cobra.Command, options runOptions) *runner {
	return &runner{app: a, options: options, errOut: cmd.ErrOrStderr()}
}

func (r *runner) run(parent context.Context) error {
	stop, err := r.listen()
	if err != nil {
		return err
	}
	defer stop()
	_, err = r.term(parent)
	return err
}

// listen finds the command, before anything is waited for, and takes signals.
func (r *runner) listen() (stop func(), err error) {
	path, missing, err := supervise.Find(r.options.command[0])
	if err != nil {
		return nil, &failure{code: missing, err: err}
	}
	r.path, r.signals = path, supervise.Listen()
	return r.signals.Stop, nil
}

// term takes these steps, of which the first are done while the next is under way:
//
//	start the watchdog, connect, wait for the lock, run the command,
//	end what it left, free the lock
//
// lost says that the lock was lost, and that nobody wants pgadvisory to end.
func (r *runner) term(parent context.Context) (lost bool, err error) {
	group, err := supervise.NewGroup()
	if err != nil {
		return false, &failure{code: exitSystem, err: err}
	}
	defer group.Close()

	start := time.Now()
	h, pool, err := r.grant(parent)
	if pool != nil {
		defer closePool(pool)
	}
	if err != nil {
		return false, r.notGranted(err)
	}
	defer r.closeLocker()
	r.tell("holding %s after %v", h.what, time.Since(start).Round(time.Millisecond))

	if err := group.Hold(*r.conn.Load()); err != nil {
		if loss := h.lock.Unlock(parent); errors.Is(loss, advisory.ErrLost) {
			return true, r.lost(loss, supervise.Result{}, err)
		}
		return false, &failure{code: exitSystem, err: err}
	}
	stopMarking := r.mark(h.lock)
	result, startCode, startErr := group.Run(supervise.Command{
		Path: r.path, Args: r.options.command, Env: environ(h.env),
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
		return !result.Asked, r.lost(loss, result, startErr)
	case startErr != nil:
		return false, &failure{code: startCode, err: startErr}
	case unlockErr != nil:
		r.say(message(unlockErr)) // held until then, and freed with the session
	}
	r.tell("freed %s", h.what)
	return false, &failure{code: result.Code, raise: result.Interrupt}
}

// environ is this process's environment with more variables, or other values.
func environ(more []string) []string {
	env := slices.DeleteFunc(os.Environ(), func(pair string) bool {
		name, _, _ := strings.Cut(pair, "=")
		return slices.ContainsFunc(more, func(other string) bool { return strings.HasPrefix(other, name+"=") })
	})
	return append(env, more...)
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
			waiting, stop := r.withWait(ctx)
			defer stop()
			a.held, a.err = r.acquire(waiting, pool)
		} else if r.waitsFor(ctx, a.err) {
			// The time counts from now on for both.
			waiting, stop := r.withWait(ctx)
			defer stop()
			if pool, a.err = r.reopen(waiting, a.err); a.err == nil {
				a.held, a.err = r.acquire(waiting, pool)
			}
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
		text += "\nthe command was killed by " + supervise.Name(result.Signal)
	default:
		text += fmt.Sprintf("\nthe command ended with status %d", result.Code)
	}
	return &failure{code: exitLost, err: errors.New(text)}
}

func (r *runner) say(text string) { say(r.errOut, text) }

func (r *runner) tell(format string, args ...any) {
	if r.options.verbose {
		r.say(fmt.Sprintf(format, args...))
	}
}

// printable is the lock's name for messages, or the names.
func (r *runner) printable() string {
	quoted := make([]string, len(r.options.names))
	for i, name := range r.options.names {
		quoted[i] = lockview.Printable(name)
		if quoted[i] == name && strings.ContainsAny(name, " \"") {
			quoted[i] = strconv.Quote(name)
		}
	}
	return strings.Join(quoted, ", ")
}
