package advisory

import (
	"context"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// holder is one who holds a lock in this process, or is about to: a call that has had its
// turn and asks the server now.
type holder struct {
	shared bool
	lock   *Lock // nil until the server has granted it
}

func holdersFor(targets []lockid.Target) []*holder {
	holders := make([]*holder, len(targets))
	for i, t := range targets {
		holders[i] = &holder{shared: t.Shared}
	}
	return holders
}

// request is what a call asks for.
type request struct {
	lockproto.Request
	keys      []Key      // as given
	semaphore *Semaphore // nil but for a slot of one
	session   bool       // for a Session, which has no locks yet
}

// waiter is the place of one call in a queue.
type waiter struct {
	request
	ctx     context.Context // the queue only looks whether it has ended
	shared  bool
	try     bool      // does not wait for other sessions
	lead    bool      // for a term of Lead
	turn    bool      // wants its turn in this queue and nothing of the server
	asked   bool      // the server has been asked on behalf of it; the acquirer's
	holders []*holder // in the queues of its locks, of a call for several, until they are the Lock's
	result  chan result

	// scratch is memory for the most frequent call, which is for one lock and alone in its
	// queue. It comes in one piece with the waiter.
	scratch struct {
		queue    queue
		acquirer acquirer
		key      [1]Key
		target   [1]lockid.Target
		waiters  [1]*waiter
		holders  [1]*holder
	}
}

// result answers a waiter. The waiter's channel takes one without blocking.
type result struct {
	lock    *Lock
	session *Session
	holder  *holder // for turn
	err     error
}
