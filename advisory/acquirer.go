package advisory

import (
	"context"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
)

// acquirer drives the attempt of one queue: it asks the server on behalf of the waiters.
type acquirer struct {
	attempt
	queue *queue
	asker *waiter // on whose behalf the server was asked last

	// caller is the call on whose goroutine the acquirer runs, which spares another one
	// where the server answers at once; nil on a goroutine of the acquirer's own. With a
	// caller it does nothing that the caller's context would not interrupt, nor anything
	// that blocks once the caller has its answer or has left.
	caller   *waiter
	timedOut bool // the pool had no connection for the caller in time
}

// startAcquirer runs an acquirer on a goroutine of its own, on conn if there is one. It
// ends when nobody waits whom it could serve; Close waits for it.
func (l *Locker) startAcquirer(q *queue, conn *connhold.Hold) {
	a := &acquirer{attempt: attempt{locker: l}, queue: q}
	if conn != nil {
		a.adopt(conn)
	}
	a.detach()
}

// acquireFor runs an acquirer on the goroutine of w's call, as long as that can wait for
// it.
func (l *Locker) acquireFor(q *queue, w *waiter) {
	a := &w.scratch.acquirer
	a.locker, a.queue, a.caller = l, q, w
	if !a.run() {
		a.detach()
	}
	l.work.Done()
}

// detach goes on on a goroutine of the acquirer's own.
func (a *acquirer) detach() {
	a.caller = nil
	a.locker.work.Go(func() { a.run() })
}

// run takes one step after the other until nobody waits whom it could serve. It looks who
// is first before each step, because anyone may leave at any time. It reports false when
// it has to go on without its caller.
func (a *acquirer) run() (finished bool) {
	l, q := a.locker, a.queue
	for {
		w, alone := l.next(q)
		next, refusal := a.plan(w)
		if a.caller != nil && a.mustDetach(next) {
			return false
		}
		switch next {
		case stepConnect:
			if err := a.connectFor(w); err != nil {
				l.refuseConnecting(q, w, err)
			}
		case stepProbe:
			a.probeFor(w)
		case stepResume:
			w = a.asker
			a.told(w, a.resume(context.WithoutCancel(w.ctx), &w.request))
		case stepTry:
			ctx := context.WithoutCancel(w.ctx)
			if a.caller != nil {
				ctx = a.caller.ctx
			}
			a.askFor(w)
			a.told(w, a.try(ctx, &w.request))
		case stepScript, stepWait:
			a.askFor(w)
			a.told(w, a.script(w.ctx, &w.request, next == stepWait))
		case stepPoll:
			a.askFor(w)
			if !l.pause(q, w, a.pollAt) {
				continue
			}
			a.told(w, a.poll(w.ctx, &w.request))
		case stepRelease:
			a.release()
		case stepGrant:
			a.grant(w)
		case stepRefuse, stepFinish:
			if a.state == differing {
				a.state = refused
			}
			if w != nil && !alone {
				l.refuse(q, w, refusal)
				continue
			}
			// The connection goes back before w is told: w may ask at once for another
			// lock.
			a.release()
			if l.finish(q, w, refusal) {
				return true
			}
		}
	}
}

// askFor notes on whose behalf the server is asked next. The pauses of a session that is
// parked go by how long that one has waited, so a change of it ends the pause.
func (a *acquirer) askFor(w *waiter) {
	if a.asker != w && !a.waitingSince.IsZero() {
		a.waitingSince, a.pollAt = time.Now(), time.Time{}
	}
	a.asker = w
}

// mustDetach reports whether the next step is not for the caller's goroutine.
func (a *acquirer) mustDetach(next step) bool {
	switch next {
	case stepConnect, stepTry:
		return a.timedOut || len(a.caller.result) > 0 || a.caller.ctx.Err() != nil
	case stepRefuse, stepFinish:
		return a.state.isConfigured() // that takes a round trip to give back
	case stepGrant:
		return false
	case stepProbe, stepResume, stepScript, stepWait, stepPoll, stepRelease:
		return true
	}
	return true
}

// pause waits on behalf of w until a time, and reports false if something in the queue
// changed first.
func (l *Locker) pause(q *queue, w *waiter, until time.Time) bool {
	wait := time.Until(until)
	if wait <= 0 {
		return true
	}
	changed := make(chan struct{})
	l.mu.Lock()
	isFirst := l.headLocked(q) == w
	q.changed = changed
	l.mu.Unlock()
	if !isFirst {
		return false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-changed:
		return false
	}
}

// connectFor pins a connection for w, as long as somebody waits for it.
func (a *acquirer) connectFor(w *waiter) error {
	l, q := a.locker, a.queue
	var ctx context.Context
	var cancel context.CancelFunc
	pin := (*Locker).pin
	switch {
	case a.caller != nil: // one round of pin
		pin = (*Locker).pinOnce
		ctx, cancel = context.WithTimeout(a.caller.ctx, l.config.HeartbeatTimeout)
	case a.timedOut:
		pin = (*Locker).pinAfterCull
		fallthrough
	default:
		ctx, cancel = context.WithCancel(context.WithoutCancel(w.ctx))
	}
	defer cancel()
	l.mu.Lock()
	q.phase, q.cancelConnect, q.blocked = connecting, cancel, nil
	if len(q.waiters) == 0 {
		cancel() // the last one left before this was there to be called
	}
	l.mu.Unlock()

	err := a.connect(ctx, pin)
	if a.caller != nil {
		a.timedOut = ctx.Err() != nil && a.caller.ctx.Err() == nil
	}

	l.mu.Lock()
	q.cancelConnect = nil
	if err == nil && a.state == ready {
		q.phase = asking
	}
	l.mu.Unlock()
	if ctx.Err() != nil {
		return nil // all who waited for it have left
	}
	return err
}

// probeFor probes the session of a connection for w.
func (a *acquirer) probeFor(w *waiter) {
	if err := a.probe(w.ctx); err != nil {
		a.locker.refuseConnecting(a.queue, w, err)
		return
	}
	if a.state == ready {
		a.locker.setPhase(a.queue, asking)
	}
}

func (l *Locker) setPhase(q *queue, p phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.phase = p
}

// next returns whom to serve next, and whether nobody else waits. It is nil when nobody
// is compatible with the holders.
func (l *Locker) next(q *queue) (w *waiter, alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w = l.headLocked(q)
	if w == nil || w.turn || !q.isCompatible(w.shared) {
		return nil, false
	}
	return w, len(q.waiters) == 1
}

// finish refuses w, if there is one, and ends the acquirer unless somebody can be served
// by now.
func (l *Locker) finish(q *queue, w *waiter, refusal error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuseLocked(q, w, refusal)
	q.phase = connecting
	if next := l.headLocked(q); next != nil && !next.turn && q.isCompatible(next.shared) {
		return false
	}
	if q.call != nil {
		l.unholdCallLocked(q.call) // which has left
	}
	q.phase, q.blocked = idle, nil
	l.advanceLocked(q, nil)
	l.capacityChangedLocked()
	return true
}
