package gate

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// ErrStale is matched by every [StaleError].
var ErrStale = errors.New("gate: stale token")

// StaleError is the refusal of a token that is below the highest that was let through.
type StaleError struct {
	Resource string
	Token    int64
	Current  int64
}

// Error describes the refusal.
func (e *StaleError) Error() string {
	return fmt.Sprintf("gate: token %d of resource %q is stale, the highest is %d", e.Token, e.Resource, e.Current)
}

// Is reports whether target is [ErrStale].
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Marks remembers the highest token of each resource. It is safe for concurrent use.
type Marks interface {
	// Raise raises the mark of the resource to the token, unless it is as high or
	// higher, and returns the mark. When it returns the mark is durable.
	Raise(ctx context.Context, resource string, token int64) (mark int64, err error)
}

// Gate lets writes through whose token is not stale. It is safe for concurrent use.
type Gate struct {
	marks Marks

	// mu guards the fields below. Nothing blocks under it.
	mu        sync.Mutex
	resources map[string]*passage
}

// passage is a resource that somebody writes to, or waits to.
type passage struct {
	users   int           // calls that refer to it
	highest int64         // token of those
	token   int64         // of the writes that run
	inside  int           // how many run
	changed chan struct{} // closed when the last of them ends, or a higher token comes
}

// New returns a Gate with these marks.
func New(marks Marks) *Gate {
	return &Gate{marks: marks, resources: make(map[string]*passage)}
}

// Raise refuses tokens below this one from now on. It waits for the writes with a lower
// token that run, until ctx ends. It returns a [StaleError] if the token is stale.
func (g *Gate) Raise(ctx context.Context, resource string, token int64) error {
	return g.Do(ctx, resource, token, func(context.Context) error { return nil })
}

// Do calls fn, unless the token is stale: then it returns a [StaleError]. Writes with the
// same token run at the same time; a write with a higher token waits until those
// with a lower one have returned, or ctx ends. If the marks can't be read or
// written, Do returns their error and calls nothing.
func (g *Gate) Do(ctx context.Context, resource string, token int64, fn func(context.Context) error) error {
	if token <= 0 {
		return fmt.Errorf("gate: token %d of resource %q is not valid: tokens start at 1", token, resource)
	}
	p := g.use(resource)
	defer g.drop(resource, p)
	mark, err := g.marks.Raise(ctx, resource, token)
	if err != nil {
		return fmt.Errorf("gate: raise the mark of resource %q to %d: %w", resource, token, err)
	}
	if mark > token {
		return &StaleError{Resource: resource, Token: token, Current: mark}
	}
	if err := g.enter(ctx, p, resource, token); err != nil {
		return err
	}
	defer g.leave(p)
	return fn(ctx)
}

// enter waits until no write with a lower token runs. A token below one that was let
// through by the marks since this one was is stale by now.
func (g *Gate) enter(ctx context.Context, p *passage, resource string, token int64) error {
	g.mu.Lock()
	if token > p.highest {
		p.highest = token
		p.changeLocked()
	}
	for {
		if token < p.highest {
			defer g.mu.Unlock()
			return &StaleError{Resource: resource, Token: token, Current: p.highest}
		}
		if p.inside == 0 || token == p.token {
			defer g.mu.Unlock()
			p.token = token
			p.inside++
			return nil
		}
		changed := p.changed
		g.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("gate: token %d of resource %q waits for a write with a lower one: %w", token, resource, ctx.Err())
		}
		g.mu.Lock()
	}
}

func (g *Gate) leave(p *passage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.inside--; p.inside == 0 {
		p.changeLocked()
	}
}

// changeLocked has those who wait look again. The Gate's mu must be held.
func (p *passage) changeLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (g *Gate) use(resource string) *passage {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.resources[resource]
	if p == nil {
		p = &passage{changed: make(chan struct{})}
		g.resources[resource] = p
	}
	p.users++
	return p
}

func (g *Gate) drop(resource string, p *passage) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(g.resources, resource)
	}
}
