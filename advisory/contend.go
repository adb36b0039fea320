package advisory

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// contender asks the server on behalf of those in a line.
type contender struct {
	contest
	locker *Locker
	line   *line
	asker  *waiter // on whose behalf the server was asked last

	// self is the call whose own goroutine it runs on, which spares another one
	// where the server answers at once; nil when it has a goroutine of its own.
	// With a self it does nothing that self's context would not interrupt, nor
	// anything that blocks once self has its answer or has left.
	self   *waiter
	isLate bool // to connect
}

// contend goes on in the line in a goroutine of its own, on hold if there is one.
// It ends when nobody waits whom it could serve; Close waits for it.
func (l *Locker) contend(ln *line, hold *connhold.Hold) {
	c := &contender{locker: l, line: ln}
	if hold != nil {
		c.become(hold, l)
	}
	c.goOn()
}

// contendFor goes on in the line on the goroutine of w's call, as far as that
// can wait for it.
func (l *Locker) contendFor(ln *line, w *waiter) {
	c := &contender{locker: l, line: ln, self: w}
	if !c.run() {
		c.goOn()
	}
	l.work.Done()
}

func (c *contender) goOn() {
	c.self = nil
	c.locker.work.Go(func() { c.run() })
}

// run asks first come first served, as long as there is somebody who could be
// served. It goes by who is first at each step, because anyone may leave at any
// time. It reports false when it has to go on without a self.
func (c *contender) run() bool {
	l, ln := c.locker, c.line
	for {
		w, alone := l.next(ln)
		var refusal error
		switch {
		case c.left:
			if c.self != nil {
				return false
			}
			c.step(c.asker, func() error { return c.try(context.WithoutCancel(c.asker.ctx), l, c.asker.request) })
			continue
		case w == nil:
			// nobody to refuse
		case c.hold == nil:
			if c.mustLeave() {
				return false
			}
			if err := c.connectFor(w); err != nil {
				l.refuseConnecting(ln, w, err)
			}
			continue
		case c.known == nil:
			if c.self != nil {
				return false
			}
			c.meetFor(w)
			continue
		case c.refusal != nil:
			refusal, c.refusal = c.refusal, nil
		case c.granted && c.shared != w.shared:
			if c.self != nil {
				return false
			}
			// Who asked in the other mode has left, and the grant is of no use.
			c.giveBack(l)
			continue
		case !c.granted && w.try && w.asked:
			refusal = fmt.Errorf("%w: another session holds the lock", ErrNotAcquired)
		case !c.granted:
			if !c.askFor(w) {
				return false
			}
			continue
		case w.issue.IsZero() || c.issue == w.issue && c.receipt > 0:
			c.serve(w)
			continue
		case c.issue == w.issue && w.try:
			refusal = fmt.Errorf("%w: %w", ErrNotAcquired, c.pending())
		default:
			if c.self != nil {
				return false
			}
			c.step(w, func() error { return c.makeReceipt(w.ctx, l, w.request) })
			continue
		}
		if w != nil && !alone {
			l.refuse(ln, w, refusal)
			continue
		}
		if c.applied && c.self != nil {
			return false
		}
		// The connection goes back before w is told: it may ask at once for
		// another lock.
		c.giveBack(l)
		if l.finish(ln, w, refusal) {
			return true
		}
	}
}

// mustLeave reports whether self has no reason to wait for anything any more, or the
// pool gave it no connection in time.
func (c *contender) mustLeave() bool {
	return c.self != nil && (c.isLate || len(c.self.result) > 0 || c.self.ctx.Err() != nil)
}

// askFor asks the server on behalf of w. It reports false when that could keep
// self.
func (c *contender) askFor(w *waiter) bool {
	wait, ctx := c.asked && !w.try, context.WithoutCancel(w.ctx)
	if c.self != nil {
		if c.mustLeave() || !c.goesShort(&w.request, wait) {
			return false
		}
		ctx = c.self.ctx
	}
	c.asker = w
	c.step(w, func() error {
		if c.goesShort(&w.request, wait) {
			return c.try(ctx, c.locker, w.request)
		}
		return c.ask(w.ctx, c.locker, w.request, wait)
	})
	return true
}

// next returns whom to serve next, and whether nobody else waits. It is nil when
// nobody can be served next to those who hold.
func (l *Locker) next(ln *line) (w *waiter, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w = l.headLocked(ln)
	if w == nil || w.turn || !ln.fits(w.shared) {
		return nil, false
	}
	return w, len(ln.waiters) == 1
}

// finish refuses w, if there is one, and ends the contender unless somebody can
// be served by now.
func (l *Locker) finish(ln *line, w *waiter, refusal error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w != nil {
		ln.answerLocked(w, result{err: refusal})
	}
	ln.phase = connecting
	if next := l.headLocked(ln); next != nil && !next.turn && ln.fits(next.shared) {
		return false
	}
	ln.contended, ln.phase, ln.pending = false, idle, nil
	l.advanceLocked(ln, nil)
	l.changedLocked()
	return true
}

// refuse tells w that there is no lock.
func (l *Locker) refuse(ln *line, w *waiter, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.answerLocked(w, result{err: err})
}

// refuseConnecting tells w why it gets no connection. It tells all others in the line
// as well, with two exceptions. If the pool is exhausted, they can still get the
// connection of a holder in this process. If a handler panicked, that costs one call.
func (l *Locker) refuseConnecting(ln *line, w *waiter, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, ErrPoolExhausted) || isPanic(err) {
		ln.answerLocked(w, result{err: err})
		return
	}
	ln.refuseAllLocked(err)
}

// step runs one step on behalf of w. After an error the session may hold the
// lock all the same, so its connection is destroyed and the contest begins anew;
// unless that is in order, w learns why.
func (c *contender) step(w *waiter, do func() error) {
	err := do()
	switch {
	case errors.Is(err, connhold.ErrAbandoned), err == nil && c.known == nil:
		// There is no answer yet.
	case err == nil:
		w.asked = true
		c.locker.told(c.line, &c.contest)
	case !c.fail(c.locker, err):
		c.locker.refuse(c.line, w, explain(err))
	}
}

// told notes what the server has said, for those who would not wait.
func (l *Locker) told(ln *line, c *contest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln.pending = c.pending()
	if c.granted {
		ln.phase = asking
		return
	}
	ln.phase = denied
	for _, w := range append([]*waiter(nil), ln.waiters...) {
		if w.try && !w.asked && w.shared {
			// It came while others of its mode were being answered.
			ln.answerLocked(w, result{err: fmt.Errorf("%w: another session holds the lock", ErrNotAcquired)})
		}
	}
}

// fail destroys the connection of a contest after an error, and reports whether
// it was one that had been dead when it was pinned. A pool gives such
// connections out, all of them after a restart of the server; a session that is
// dead holds nothing, and another connection will do.
func (c *contest) fail(l *Locker, err error) (wasStale bool) {
	l.unpin(c.hold.Destroy)
	wasStale = !c.asked && isDead(err) && c.stale < l.size
	*c = contest{stale: c.stale + 1}
	return wasStale
}

func isDead(err error) bool {
	loss := connhold.LossFrom(err)
	return loss != nil && loss.Reason != connhold.Unresponsive
}

// explain says what to do where the server's words don't.
func explain(err error) error {
	const outOfSharedMemory = "53200"
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case ok && pgErr.Code == outOfSharedMemory:
		return fmt.Errorf("%w: raise max_locks_per_transaction, or hold fewer locks: %w", ErrLockTableFull, err)
	case ok && strings.Contains(pgErr.Message, "plpgsql"):
		return fmt.Errorf("waiting needs the language plpgsql, and USAGE on it: %w", err)
	default:
		return err
	}
}

// serve makes w the owner of what c has won, if it is still the first.
func (c *contender) serve(w *waiter) {
	l, ln := c.locker, c.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.headLocked(ln) != w {
		return
	}
	o := &occupant{shared: w.shared}
	ln.holders = append(ln.holders, o)
	lock := l.newLock(w.request, []*occupant{o}, &c.contest)
	c.contest = contest{}
	ln.phase = connecting
	ln.answerLocked(w, result{lock: lock})
}
