package connhold

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Limits bounds the time until a dead session is noticed: at most Heartbeat +
// Timeout after the start of the last heartbeat that was answered.
type Limits struct {
	Heartbeat time.Duration // from the start of one heartbeat to the next
	Timeout   time.Duration // for the server's answer

	// StartDelay is how long a watch waits before it begins to read. A shorter hold
	// does not pay for a goroutine that reads and has to be interrupted. A loss that
	// comes earlier is read when the watch begins.
	StartDelay time.Duration

	// Backend is the process ID that each heartbeat has to come from. 0 is for a
	// connection that leads to one backend only.
	Backend uint32
}

// past is a deadline that has always expired. Setting it interrupts a read.
var past = time.Unix(1, 0)

// watch owns the socket of one session between Watch and Unwatch.
type watch struct {
	pgx      *pgx.Conn
	conn     *pgconn.PgConn // its own
	limits   Limits
	onLost   func(*Loss)
	panicked func(error) // the hold's; nil for none

	timers *Timers
	start  Timer         // fires, unless it is stopped first
	fire   func()        // begins to read
	begun  time.Time     // when the session was known to live
	exited chan struct{} // closed when the goroutine has left the socket
	loss   *Loss         // written before exited is closed

	// mu orders the deadlines that the goroutine sets against the one with
	// which stop interrupts it. Nothing blocks under it.
	mu       sync.Mutex
	stopping bool
	beating  bool
}

// newWatch makes a watch that runs once begin is called.
func newWatch(h *Hold, limits Limits, onLost func(*Loss)) *watch {
	w := h.spare
	h.spare = nil
	if w == nil {
		w = &watch{pgx: h.pin.Conn(), conn: h.pin.Conn().PgConn(), exited: make(chan struct{})}
		w.fire = func() { go w.run() } // ends on stop, which waits for it, or on a loss
	}
	w.timers, w.limits, w.onLost, w.begun, w.panicked = h.timers, limits, onLost, time.Now(), h.Panicked
	return w
}

// begin has the watch run from limits.StartDelay later on. onLost may be called before
// begin returns.
func (w *watch) begin() { w.timers.Set(&w.start, w.begun.Add(w.limits.StartDelay), w.fire) }

func (w *watch) run() {
	w.loss = w.untilLost()
	close(w.exited)
	if w.loss != nil {
		w.onLost(w.loss)
	}
}

// untilLost returns nil when stop asked for the socket.
func (w *watch) untilLost() *Loss {
	lastGood := w.begun
	for {
		// The passive read: only news of the session's end, an answer to
		// nothing, makes it return with anything but a timeout.
		if !w.arm(w.socket().SetReadDeadline, lastGood.Add(w.limits.Heartbeat), false) {
			return nil
		}
		err := Protect(func() error { return w.conn.WaitForNotification(context.Background()) })
		dropNotifications(w.pgx)
		if err == nil {
			continue // a NOTIFY that nobody here asked for
		}
		if _, ok := errors.AsType[*PanicError](err); ok { // the message has been read
			w.tell(err)
			continue
		}
		if !pgconn.Timeout(err) {
			return lossFromRead(err)
		}

		start := time.Now()
		if !w.arm(w.socket().SetDeadline, start.Add(w.limits.Timeout), true) {
			return nil
		}
		if loss := w.beat(); loss != nil {
			return loss
		}
		lastGood = start
	}
}

func (w *watch) tell(panicked error) {
	if w.panicked != nil {
		w.panicked(panicked)
	}
}

// arm sets the next deadline unless stop has asked for the socket.
func (w *watch) arm(set func(time.Time) error, deadline time.Time, beat bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopping {
		return false
	}
	w.beating = beat
	// This fails on a closed socket only, and so will the read that follows.
	_ = set(deadline)
	return true
}

// stop takes the socket back and returns the loss, if there was one. A passive
// read is interrupted at once; a heartbeat under way may finish within limit,
// after which it is cut off, which counts as a loss.
func (w *watch) stop(limit time.Duration) *Loss {
	w.mu.Lock()
	w.stopping = true
	if !w.beating {
		_ = w.socket().SetReadDeadline(past)
	}
	w.mu.Unlock()

	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.exited:
	case <-timer.C:
		_ = w.socket().SetDeadline(past)
		<-w.exited
	}
	_ = w.socket().SetDeadline(time.Time{})
	return w.loss
}

func (w *watch) socket() net.Conn { return w.conn.Conn() }
