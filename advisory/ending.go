package advisory

import (
	"context"
	"sync"
)

// ending is whether and why a lock has ended. The context that tells of it is
// made when somebody asks for it: most locks are gone before that.
type ending struct {
	// mu guards the fields below. Nothing blocks under it.
	mu     sync.Mutex
	cause  error
	ctx    context.Context // nil until it is asked for
	cancel context.CancelCauseFunc
}

// end notes the cause, unless there is one already, and ends the context.
func (e *ending) end(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cause != nil {
		return
	}
	e.cause = cause
	if e.ctx != nil {
		e.cancel(cause) // nothing that hangs on it takes mu
	}
}

// why returns nil until the end.
func (e *ending) why() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.cause
}

// context returns a context that ends with the lock, for the cause of that.
func (e *ending) context() context.Context {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx == nil {
		e.ctx, e.cancel = context.WithCancelCause(context.Background())
		if e.cause != nil {
			e.cancel(e.cause)
		}
	}
	return e.ctx
}
