package advisory

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// contend asks the server for the lock on behalf of those in the line, first
// come first served, as long as there is somebody who could be served. It goes
// by who is first at each step, because anyone may leave at any time.
func (l *Locker) contend(ln *line, hold *connhold.Hold) {
	c := &contest{}
	if hold != nil {
		c.hold = hold
		c.become(hold, l)
	}
	for {
		w, alone := l.next(ln)
		var refusal error
		switch {
		case w == nil:
			// nobody to refuse
		case c.hold == nil:
			if err := l.connectFor(ln, w, c); err != nil {
				l.refuseConnecting(ln, w, err)
			}
			continue
		case c.refusal != nil:
			refusal, c.refusal = c.refusal, nil
		case c.granted && c.shared != w.shared:
			// Who asked in the other mode has left, and the grant is of no use.
			c.giveBack(l)
			continue
		case !c.granted && w.try && w.asked:
			refusal = fmt.Errorf("%w: another session holds the lock", ErrNotAcquired)
		case !c.granted:
			l.step(ln, w, c, func() error {
				err := c.ask(w.ctx, l, w.request, c.asked && !w.try)
				w.asked = err == nil
				return err
			})
			continue
		case w.issue.IsZero() || c.issue == w.issue && c.receipt > 0:
			l.serve(ln, w, c)
			continue
		case c.issue == w.issue && w.try:
			refusal = fmt.Errorf("%w: %w", ErrNotAcquired, c.pending())
		default:
			l.step(ln, w, c, func() error { return c.makeReceipt(w.ctx, l, w.request) })
			continue
		}
		if w != nil && !alone {
			l.refuse(ln, w, refusal)
			continue
		}
		// The connection goes back before w is told: it may ask at once for
		// another lock.
		c.giveBack(l)
		if l.finish(ln, w, refusal) {
			return
		}
	}
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

// refuseConnecting tells w why it gets no connection, and all others in the line
// as well unless it is for want of room: somebody who waits for a lock that is
// held here gets the holder's connection.
func (l *Locker) refuseConnecting(ln *line, w *waiter, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if errors.Is(err, ErrPoolExhausted) {
		ln.answerLocked(w, result{err: err})
		return
	}
	ln.refuseAllLocked(err)
}

// step runs one step on behalf of w. After an error the session may hold the
// lock all the same, so its connection is destroyed and the contest begins anew;
// unless that is in order, w learns why.
func (l *Locker) step(ln *line, w *waiter, c *contest, do func() error) {
	err := do()
	if err == nil {
		l.told(ln, c)
		return
	}
	if !c.fail(l, err) {
		l.refuse(ln, w, explain(err))
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
		return fmt.Errorf("waiting, and several locks at once, need the language plpgsql, and USAGE on it: %w", err)
	default:
		return err
	}
}

// serve makes w the owner of what c has won, if it is still the first.
func (l *Locker) serve(ln *line, w *waiter, c *contest) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.headLocked(ln) != w {
		return
	}
	o := &occupant{shared: w.shared}
	ln.holders = append(ln.holders, o)
	lock := l.newLock(w.request, []*occupant{o}, c)
	*c = contest{}
	ln.phase = connecting
	ln.answerLocked(w, result{lock: lock})
}

// connectFor pins a connection for w, as long as somebody waits for it.
func (l *Locker) connectFor(ln *line, w *waiter, c *contest) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.ctx))
	defer cancel()
	l.mu.Lock()
	ln.phase, ln.stopConnecting, ln.pending = connecting, cancel, nil
	if len(ln.waiters) == 0 {
		cancel() // the last one left before this was there to be called
	}
	l.mu.Unlock()

	err := c.connect(ctx, l)

	l.mu.Lock()
	ln.stopConnecting = nil
	if err == nil {
		ln.phase = asking
	}
	l.mu.Unlock()
	if ctx.Err() != nil {
		return nil // all who waited for it have left
	}
	return err
}
