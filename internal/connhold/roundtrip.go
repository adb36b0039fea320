package connhold

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// ErrAbandoned is what [Hold.RoundTrip] returns when its context ended before the answer
// arrived. The request stays under way.
var ErrAbandoned = errors.New("abandoned before the server answered")

// Statement is a prepared statement of one session that returns one row of one
// column. It belongs to that session and is kept with its connection, in
// [Hold.Data].
type Statement struct {
	name, sql string
	tracer    pgx.QueryTracer // nil for none
	isKnown   bool            // to the server
}

// NewStatement returns a statement that the session knows under name. The first round
// trip that uses it prepares it. The pool's tracer sees its runs, without arguments.
func (h *Hold) NewStatement(name, sql string) *Statement {
	return &Statement{name: name, sql: sql, tracer: h.pin.Conn().Config().Tracer}
}

// Untraced hides the statement from the tracer, and returns it.
func (s *Statement) Untraced() *Statement {
	s.tracer = nil
	return s
}

// request is a statement that has been sent.
type request struct {
	statement *Statement
	params    [][]byte
	traced    context.Context // the tracer's
	limit     time.Duration
	until     time.Time
	parses    bool // with its text

	answer   []byte
	rows     int
	err      *pgconn.PgError
	panicked error // of a handler that was called for one of the messages
}

// RoundTrip runs a statement in one round trip and returns its answer, in text. limit
// bounds it. When ctx ends first, RoundTrip returns [ErrAbandoned] at once. The request
// is then still under way, and only [Hold.Resume] and [Hold.Destroy] may follow.
//
// Unlike [Hold.Run], a RoundTrip can be abandoned without harm to the connection, and it
// skips what pgx does for statements of all kinds. After other errors the hold can only
// be destroyed. A [PanicError] comes with the answer, or with "" if nothing was sent; the
// session can be used further then.
func (h *Hold) RoundTrip(ctx context.Context, limit time.Duration, s *Statement, params ...[]byte) (string, error) {
	h.mustBeFree("round trip")
	h.request = request{statement: s, params: params, traced: ctx, limit: limit, until: time.Now().Add(limit), answer: h.request.answer[:0]}
	h.pending = &h.request
	if s.tracer != nil {
		if err := Protect(func() error {
			h.pending.traced = s.tracer.TraceQueryStart(ctx, h.pin.Conn(), pgx.TraceQueryStartData{SQL: s.sql})
			return nil
		}); err != nil { // nothing was sent
			h.pending, h.request, h.dirty = nil, request{answer: h.request.answer}, true
			return "", err
		}
	}
	return h.await(ctx, h.send)
}

// Resume waits for the answer to an abandoned request.
func (h *Hold) Resume(ctx context.Context) (string, error) {
	if h.pending == nil {
		panic("BUG: connhold: no request is under way")
	}
	return h.await(ctx, func(*request) {})
}

// send writes the request. That it can't is found by reading.
func (h *Hold) send(q *request) {
	if h.pin.Conn().IsClosed() { // and pgx may still be writing its goodbye
		_ = h.socket().Close()
		return
	}
	f := h.pin.Conn().PgConn().Frontend()
	if !q.statement.isKnown {
		q.parses = true
		// There may be one from before a connection was reset, or changed hands.
		f.SendClose(&pgproto3.Close{ObjectType: 'S', Name: q.statement.name})
		f.SendParse(&pgproto3.Parse{Name: q.statement.name, Query: q.statement.sql})
	}
	h.bind = pgproto3.Bind{PreparedStatement: q.statement.name, Parameters: q.params}
	f.SendBind(&h.bind)
	f.SendExecute(&execute)
	f.SendSync(&endOfRequest)
	if err := f.Flush(); err != nil {
		_ = h.socket().Close()
	}
}

var (
	execute      pgproto3.Execute
	endOfRequest pgproto3.Sync
)

func (h *Hold) await(ctx context.Context, first func(*request)) (string, error) {
	q := h.pending
	i := h.guard
	if i == nil {
		i = newDeadlineGuard(h)
	}
	i.timers = h.timers
	i.on(ctx, q.until)
	first(q)
	err := h.receive(q)
	isUnused, left := i.off()
	if h.guard = i; !isUnused {
		h.guard = nil // it may be on its way
	}
	if left && pgconn.Timeout(err) && time.Now().Before(q.until) {
		return "", ErrAbandoned
	}
	h.pending = nil
	answer, err := h.conclude(q, err)
	asked := *q
	// Not to be kept with the connection.
	h.request, h.bind = request{answer: asked.answer[:0]}, pgproto3.Bind{}
	if asked.statement.tracer != nil {
		if panicked := Protect(func() error {
			asked.statement.tracer.TraceQueryEnd(asked.traced, h.pin.Conn(), pgx.TraceQueryEndData{Err: err})
			return nil
		}); panicked != nil {
			h.dirty = true
			if err == nil || errors.Is(err, errDeallocated) {
				return answer, panicked
			}
			h.tell(panicked) // err says what the session is in
		}
	}
	if errors.Is(err, errDeallocated) {
		return h.RoundTrip(ctx, time.Until(asked.until), asked.statement, asked.params...)
	}
	return answer, err
}

// errDeallocated means that the server does not know the statement any more, and
// nothing was executed.
var errDeallocated = errors.New("prepared statement does not exist")

// conclude says what came of a request that has been read to its end.
func (h *Hold) conclude(q *request, err error) (string, error) {
	const invalidStatementName = "26000"
	switch {
	case err == nil && q.err != nil && q.err.Code == invalidStatementName && !q.parses:
		q.statement.isKnown = false
		return "", errDeallocated
	case err == nil && q.err == nil && q.rows == 1:
		q.statement.isKnown = true
		h.dirty = h.dirty || q.panicked != nil
		return text(q.answer), q.panicked
	}
	h.dirty = true
	switch {
	case q.err != nil:
		return "", q.err // also when it was the session's last word
	case err == nil:
		return "", fmt.Errorf("the server answered with %d rows", q.rows)
	case pgconn.Timeout(err):
		return "", fmt.Errorf("the server did not answer within %s: %w", q.limit.Round(time.Millisecond), err)
	default:
		return "", err
	}
}

// text spares an allocation for the most frequent answers.
func text(answer []byte) string {
	switch string(answer) {
	case "t":
		return "t"
	case "f":
		return "f"
	default:
		return string(answer)
	}
}

// receive reads until the session is idle again. It can be called again after a
// timeout.
func (h *Hold) receive(q *request) error {
	for {
		isIdle, err := h.receiveMessage(q)
		if _, ok := errors.AsType[*PanicError](err); ok { // the message has been read
			q.panicked, err = err, nil
		}
		if isIdle || err != nil {
			return err
		}
	}
}

func (h *Hold) receiveMessage(q *request) (isIdle bool, err error) {
	defer recoverInto(&err)
	message, err := h.pin.Conn().PgConn().ReceiveMessage(context.Background())
	if err != nil {
		return false, err
	}
	switch m := message.(type) {
	case *pgproto3.DataRow:
		q.rows++
		if len(m.Values) == 1 { // valid until the next message only
			q.answer = append(q.answer[:0], m.Values[0]...)
		}
	case *pgproto3.ErrorResponse:
		if q.err == nil {
			q.err = pgconn.ErrorResponseToPgError(m)
		}
	case *pgproto3.NotificationResponse:
		dropNotifications(h.pin.Conn())
	case *pgproto3.ReadyForQuery:
		return true, nil
	}
	return false, nil
}

// deadlineGuard interrupts a read when a context ends, or at a time.
type deadlineGuard struct {
	socket net.Conn
	timers *Timers
	timer  Timer
	stop   func() bool // for the context
	expire func()      // interrupts a write as well
	leave  func()

	// mu orders the deadline that interrupts against what follows the read.
	mu    sync.Mutex
	over  bool
	fired bool
}

func newDeadlineGuard(h *Hold) *deadlineGuard {
	i := &deadlineGuard{socket: h.socket()}
	i.expire, i.leave = func() { i.fire(net.Conn.SetDeadline) }, func() { i.fire(net.Conn.SetReadDeadline) }
	return i
}

func (i *deadlineGuard) on(ctx context.Context, at time.Time) {
	i.timers.Set(&i.timer, at, i.expire)
	i.stop = nil
	if ctx.Done() != nil {
		i.stop = context.AfterFunc(ctx, i.leave)
	}
}

func (i *deadlineGuard) fire(end func(net.Conn, time.Time) error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.over {
		i.fired = true
		_ = end(i.socket, past)
	}
}

// off sees to it that nothing is interrupted from now on. It reports whether the
// deadlineGuard can be used again, and else whether it did interrupt the read.
func (i *deadlineGuard) off() (isUnused, fired bool) {
	timerStopped := i.timers.Stop(&i.timer)
	contextStopped := i.stop == nil || i.stop()
	i.stop = nil
	if timerStopped && contextStopped {
		return true, false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.over = true
	if i.fired {
		_ = i.socket.SetDeadline(time.Time{})
	}
	return false, i.fired
}
