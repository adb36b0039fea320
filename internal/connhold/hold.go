package connhold

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// closeLimit bounds the goodbye to the server of a connection that is being
// destroyed. The goodbye only spares the server's log a line.
const closeLimit = time.Second

// Hold is one pinned connection. It has one owner at a time and is not safe
// for concurrent use; only its watch runs beside the owner.
type Hold struct {
	pin     *pgxpool.Conn // nil once the hold has ended
	timers  *Timers
	watch   *watch   // nil when not watched
	pending *request // its answer has not been read; nil when there is none
	dirty   bool     // a statement failed or the session died
	loss    *Loss    // the last watch found it; nil while the session lives
	*scratch

	// Panicked, unless nil, is called with a [PanicError] that is no statement's
	// error: of a handler that was called by the watch, at the release, or for a
	// statement that failed before. It is set before the hold is used.
	Panicked func(error)
}

// Pin checks a connection out of pool. It blocks until the pool has one; ctx
// bounds that wait and not the hold. A connection without deadlines, as some
// tunnels make them, is refused: nothing could interrupt a read of it. timers are
// those of all holds of one owner.
func Pin(ctx context.Context, pool *pgxpool.Pool, timers *Timers) (*Hold, error) {
	var conn *pgxpool.Conn
	err := Protect(func() (err error) {
		conn, err = pool.Acquire(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	h := &Hold{pin: conn, timers: timers, scratch: scratchOf(conn.Conn().PgConn())}
	if err := h.socket().SetDeadline(time.Time{}); err != nil && !errors.Is(err, net.ErrClosed) {
		h.Destroy()
		return nil, fmt.Errorf("the pool's DialFunc makes connections without deadlines, which a pinned connection needs: %w", err)
	}
	return h, nil
}

func (h *Hold) socket() net.Conn { return h.pin.Conn().PgConn().Conn() }

// PID is the process id of the server backend that serves the session, as the
// server reported it when the connection was made.
func (h *Hold) PID() uint32 { return h.pin.Conn().PgConn().PID() }

// RemoteAddr is that of the server, or of what is in between.
func (h *Hold) RemoteAddr() net.Addr { return h.socket().RemoteAddr() }

// ParameterStatus is what the server reported last of one of its settings, and
// empty for those of which it reports none.
func (h *Hold) ParameterStatus(name string) string {
	return h.pin.Conn().PgConn().ParameterStatus(name)
}

// Data is kept with the connection as long as that lives, in the pool too. Its
// keys are the paths of packages.
func (h *Hold) Data() map[string]any { return h.pin.Conn().PgConn().CustomData() }

// Run calls fn, which runs statements on the session, and bounds all of its
// traffic by limit. fn gets ctx's values without its end. After an error, from
// the server or from this side, the hold can only be destroyed: a statement
// that failed may have had its effect on the session all the same.
func (h *Hold) Run(ctx context.Context, limit time.Duration, fn func(context.Context, *pgx.Conn) error) error {
	h.mustBeFree("statement")
	// Setting a deadline fails on a closed socket only, and fn says so then.
	_ = h.socket().SetDeadline(time.Now().Add(limit))
	conn := h.pin.Conn()
	err := Protect(func() error { return fn(context.WithoutCancel(ctx), conn) })
	dropNotifications(conn)
	_ = h.socket().SetDeadline(time.Time{})
	if err == nil {
		return nil
	}
	h.dirty = true
	if pgconn.Timeout(err) {
		return fmt.Errorf("the server did not answer within %s: %w", limit.Round(time.Millisecond), err)
	}
	return err
}

// mustBeFree panics unless the owner may use the connection.
func (h *Hold) mustBeFree(what string) {
	if h.pin == nil || h.watch != nil || h.pending != nil {
		panic("BUG: connhold: " + what + " on a connection that is watched, has a request under way or was given back")
	}
}

// Kill closes the connection under whoever uses it, which ends the session and
// leaves the hold to be destroyed. Other than the rest it may be called by
// anyone at any time before the hold has ended.
func (h *Hold) Kill() { _ = h.socket().Close() }

// Watch hands the idle session to a goroutine that notices its end, from
// limits.StartDelay from now on. On a loss that goroutine, having left the socket, calls
// onLost once and ends. onLost may end the hold; it must not block on a concurrent
// [Hold.Unwatch].
func (h *Hold) Watch(limits Limits, onLost func(*Loss)) {
	h.mustBeFree("watch")
	h.watch = newWatch(h, limits, onLost)
	h.watch.begin() // last: onLost may end the hold at once, and reads what is written here
}

// Unwatch takes the session back from the watch and returns the loss that the watch
// found, or nil while the session lives. Later calls return that loss again. A heartbeat
// that is under way may take limit to end; after that Unwatch cuts it off, and the
// session counts as lost.
func (h *Hold) Unwatch(limit time.Duration) *Loss {
	if h.watch == nil {
		return h.loss
	}
	w := h.watch
	h.watch = nil
	if w.timers.Stop(&w.start) { // it has not begun to read
		w.onLost = nil
		h.spare = w
		return nil
	}
	if h.loss = w.stop(limit); h.loss != nil {
		h.dirty = true
	}
	return h.loss
}

// Release ends the hold of a session that is known to hold nothing: the
// connection returns to the pool, or is destroyed if a statement failed, a
// transaction is open or the session died. It does not block on the network
// except to destroy.
func (h *Hold) Release() {
	if h.pin == nil {
		return
	}
	if !h.IsClean() {
		h.Destroy()
		return
	}
	conn := h.pin.Conn()
	if err := Protect(func() error { h.pin.Release(); return nil }); err != nil {
		_ = conn.PgConn().Conn().Close() // the pool has lost it
		h.tell(err)
	}
	h.pin = nil
}

func (h *Hold) tell(panicked error) {
	if h.Panicked != nil {
		h.Panicked(panicked)
	}
}

// MarkDirty has the end of the hold destroy the connection: its owner does not know
// what state the session is in.
func (h *Hold) MarkDirty() { h.dirty = true }

// IsAlive reports whether the connection is open as far as is known here.
func (h *Hold) IsAlive() bool { return h.pin != nil && !h.pin.Conn().IsClosed() }

// IsClean reports whether the session may serve somebody else: it is not
// watched, no statement is under way or failed and no transaction is open.
func (h *Hold) IsClean() bool {
	return h.pin != nil && !h.dirty && h.watch == nil && h.pending == nil && h.pin.Conn().PgConn().TxStatus() == 'I'
}

// Destroy ends the hold and the session. The connection leaves the pool's
// count at once, and the pool's BeforeClose is not called for it. The server
// frees what the session held as soon as it sees the connection closed, or the
// statement that runs on it ended. Destroy blocks for a second at most.
func (h *Hold) Destroy() {
	if h.pin == nil {
		return
	}
	h.Unwatch(0)
	h.pending = nil
	// Hijacked first: a pool that destroys a connection keeps counting it
	// until the goodbye is over, which on a dead link takes its time.
	conn := h.pin.Hijack()
	h.pin = nil
	if conn.IsClosed() {
		// pgx may still be saying goodbye in the background. Closing the
		// socket under it is what the server notices.
		_ = conn.PgConn().Conn().Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = conn.Close(ctx) // the session ends either way
}
