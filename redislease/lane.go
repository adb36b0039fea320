package redislease

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pgadvisory/pgadvisory/internal/lockerr"
)

// lanes are the connections of calls that end with their context.
//
// go-redis lets a command that was sent run on when its context is cancelled, and does not
// say on which connection it is. So each lane is a client of its own, for one call at a
// time: the end of the context interrupts its connection, and the call returns
// on the caller's goroutine. Another goroutine for each call would cost more than the
// call itself.
type lanes struct {
	options *redis.Options
	closing <-chan struct{}
	places  chan struct{} // one for each call at a time
	keep    time.Duration // a lane that nothing is called on

	// mu guards the fields below. Nothing blocks under it.
	mu     sync.Mutex
	closed bool
	idle   []*lane // the last one was used last
	all    map[*lane]struct{}
}

const keepLane = time.Minute

// newLanes makes lanes with the options of a client, as many at a time as that has
// connections.
func newLanes(client *redis.Client, closing <-chan struct{}) *lanes {
	options := ownOptions(client.Options())
	places := options.PoolSize
	options.PoolSize, options.MinIdleConns, options.MaxIdleConns, options.MaxActiveConns = 1, 0, 0, 0
	options.ContextTimeoutEnabled = false // who waits is interrupted once ctx has ended, and not before
	return &lanes{
		options: options, closing: closing, keep: keepLane,
		places: make(chan struct{}, places), all: make(map[*lane]struct{}),
	}
}

// run has call ask Redis, and interrupts it when ctx ends or the Leaser is closed. It
// returns an error only if it did not run call.
func (ls *lanes) run(ctx context.Context, call func(redis.UniversalClient)) error {
	select {
	case ls.places <- struct{}{}:
	default:
		select {
		case ls.places <- struct{}{}:
		case <-ctx.Done():
			return lockerr.Ended(ctx)
		case <-ls.closing:
			return ErrClosed
		}
	}
	defer func() { <-ls.places }()
	l := ls.take()
	if l == nil {
		return ErrClosed
	}
	defer ls.put(l)
	defer l.begin(ctx)()
	call(l.client)
	return nil
}

// take returns a lane that is idle, or a new one; nil if all were closed.
func (ls *lanes) take() *lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return nil
	}
	if last := len(ls.idle) - 1; last >= 0 {
		l := ls.idle[last]
		ls.idle = ls.idle[:last]
		return l
	}
	l := newLane(ls.options)
	ls.all[l] = struct{}{}
	return l
}

// put makes a lane idle, and closes the one that has been idle for the longest time if
// that is long.
func (ls *lanes) put(l *lane) {
	l.used = time.Now()
	var old *lane
	ls.mu.Lock()
	if !ls.closed {
		ls.idle = append(ls.idle, l)
		if first := ls.idle[0]; l.used.Sub(first.used) > ls.keep {
			old, ls.idle = first, ls.idle[1:]
			delete(ls.all, old)
		}
	}
	ls.mu.Unlock()
	if old != nil {
		_ = old.client.Close() // there is nothing to do about an error
	}
}

// close closes all lanes, which interrupts the calls on them.
func (ls *lanes) close() {
	ls.mu.Lock()
	ls.closed = true
	all := ls.all
	ls.all, ls.idle = nil, nil
	ls.mu.Unlock()
	for l := range all {
		_ = l.client.Close() // there is nothing to do about an error
	}
}

// lane is a client for one call at a time.
type lane struct {
	client *redis.Client
	used   time.Time // last; of the one who has the lane

	// mu guards the fields below. Setting a deadline is all that happens under it.
	mu            sync.Mutex
	conns         map[net.Conn]struct{} // one, but for moments, and for pipelines
	call          uint64                // the number of the current one
	isInterrupted bool                  // the current call
}

func newLane(options *redis.Options) *lane {
	l := &lane{conns: make(map[net.Conn]struct{})}
	o, dial := *options, options.Dialer
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return l.wrap(conn), nil
	}
	l.client = redis.NewClient(&o)
	return l
}

// begin begins a call that ctx can end, and returns what the caller ends it with.
func (l *lane) begin(ctx context.Context) (end func()) {
	l.mu.Lock()
	l.call++
	call := l.call
	l.isInterrupted = false
	l.mu.Unlock()
	if ctx.Done() == nil {
		return func() {}
	}
	stop := context.AfterFunc(ctx, func() { l.interrupt(call) })
	return func() {
		if !stop() {
			l.mu.Lock()
			l.call++ // what runs by now interrupts nothing
			l.mu.Unlock()
		}
	}
}

// interrupt ends a call if it is the current one.
func (l *lane) interrupt(call uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.call != call {
		return
	}
	l.isInterrupted = true
	for conn := range l.conns {
		_ = conn.SetDeadline(past) // of a connection that is closed there is nothing to end
	}
}

// past is the deadline of what is to end now.
var past = time.Unix(1, 0)

// bound returns the deadline that the connection is to have instead of another. mu must be
// held.
func (l *lane) bound(deadline time.Time) time.Time {
	if l.isInterrupted {
		return past
	}
	return deadline
}
