package advisory

import "errors"

// refuse tells w that there is no lock.
func (l *Locker) refuse(q *queue, w *waiter, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuseLocked(q, w, err)
}

// refuseLocked is refuse for a caller that holds mu. The locks of a call are free in this
// process before it is told.
func (l *Locker) refuseLocked(q *queue, w *waiter, err error) {
	if w != nil {
		l.unholdCallLocked(w)
		q.answerLocked(w, result{err: err})
	}
}

// refuseConnecting tells w why it gets no connection. It tells all others in the queue as
// well, with two exceptions. If the pool is exhausted, they can still get the connection
// of a holder in this process. If a handler panicked, that costs one call.
func (l *Locker) refuseConnecting(q *queue, w *waiter, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuseLocked(q, w, err)
	if !errors.Is(err, ErrPoolExhausted) && !isPanic(err) {
		q.refuseAllLocked(err)
	}
}

// told tells w of an error, and all others of what the server has said.
func (a *acquirer) told(w *waiter, err error) {
	switch {
	case err != nil:
		a.locker.refuse(a.queue, w, err)
	case a.state.isAnswered():
		w.asked = true
		a.locker.told(a.queue, &a.attempt)
	}
}

// told notes what the server has said, for those who would not wait.
func (l *Locker) told(q *queue, a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	q.blocked = a.blocker()
	if a.state == granted || a.state == blocked {
		q.phase = asking
		return
	}
	q.phase = denied
	for _, w := range append([]*waiter(nil), q.waiters...) {
		if w.try && !w.asked && w.shared {
			// It came while others of its mode were being answered.
			q.answerLocked(w, result{err: errHeldElsewhere})
		}
	}
}

// grant makes w the owner of what the attempt has got, if w is still the first.
func (a *acquirer) grant(w *waiter) {
	l, q := a.locker, a.queue
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.headLocked(q) != w {
		return
	}
	var r result
	switch {
	case w.session:
		r.session = l.newSession(&a.attempt)
	case q.call != nil:
		r.lock = l.newLock(w.request, w.holders, &a.attempt)
		w.holders = nil
	default:
		r.lock = l.newLock(w.request, nil, &a.attempt)
		q.holders = append(q.holders, r.lock.holders...)
	}
	a.attempt = attempt{locker: l}
	q.phase = connecting
	q.answerLocked(w, r)
}

// isShared is the mode of a request.
func (r *request) isShared() bool { return len(r.Targets) > 0 && r.Targets[0].Shared }
