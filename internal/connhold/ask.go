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

// ErrLeft is what [Hold.Ask] returns when its context ended before the answer
// was there. The question stays asked.
var ErrLeft = errors.New("left before the server answered")

// Statement is a prepared statement of one session that returns one row of one
// column. It belongs to that session and is kept with its connection, in
// [Hold.Data].
type Statement struct {
	name, sql string
	tracer    pgx.QueryTracer // nil for none
	isKnown   bool            // to the server
}

// NewStatement makes a statement under a name that the session has for it.
// It is prepared in the round trip that first asks it. The pool's tracer is told
// of its runs, without arguments.
func (h *Hold) NewStatement(name, sql string) *Statement {
	return &Statement{name: name, sql: sql, tracer: h.pin.Conn().Config().Tracer}
}

// Untraced makes the tracer not be told of the statement, and returns it.
func (s *Statement) Untraced() *Statement {
	s.tracer = nil
	return s
}

// question is a statement that has been sent.
type question struct {
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

// Ask sends a statement and returns its answer, in text, in one round trip. limit
// bounds that. When ctx ends first it returns [ErrLeft] at once: then the
// session has the statement under way, and nothing may be done with the hold but
// [Hold.Resume] or Destroy.
//
// Unlike [Hold.Run] it can be left without harm to the connection, and it
// spares what pgx does for statements of all kinds. After other errors the hold
// can only be destroyed. With a [PanicError] comes the answer, or nothing if nothing
// was sent; the session can be asked further then.
func (h *Hold) Ask(ctx context.Context, limit time.Duration, s *Statement, params ...[]byte) (string, error) {
	h.mustBeFree("question")
	h.question = question{statement: s, params: params, traced: ctx, limit: limit, until: time.Now().Add(limit), answer: h.question.answer[:0]}
	h.asked = &h.question
	if s.tracer != nil {
		if err := Protect(func() error {
			h.asked.traced = s.tracer.TraceQueryStart(ctx, h.pin.Conn(), pgx.TraceQueryStartData{SQL: s.sql})
			return nil
		}); err != nil { // nothing was sent
			h.asked, h.question, h.dirty = nil, question{answer: h.question.answer}, true
			return "", err
		}
	}
	return h.await(ctx, h.send)
}

// Resume waits for the answer to a question that was left.
func (h *Hold) Resume(ctx context.Context) (string, error) {
	if h.asked == nil {
		panic("BUG: connhold: nothing was asked")
	}
	return h.await(ctx, func(*question) {})
}

// send writes the question. That it can't is found by reading.
func (h *Hold) send(q *question) {
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
	f.SendSync(&endOfQuestion)
	if err := f.Flush(); err != nil {
		_ = h.socket().Close()
	}
}

var (
	execute       pgproto3.Execute
	endOfQuestion pgproto3.Sync
)

func (h *Hold) await(ctx context.Context, first func(*question)) (string, error) {
	q := h.asked
	i := h.interruption
	if i == nil {
		i = newInterruption(h)
	}
	i.alarms = h.alarms
	i.on(ctx, q.until)
	first(q)
	err := h.receive(q)
	isUnused, left := i.off()
	if h.interruption = i; !isUnused {
		h.interruption = nil // it may be on its way
	}
	if left && pgconn.Timeout(err) && time.Now().Before(q.until) {
		return "", ErrLeft
	}
	h.asked = nil
	answer, err := h.conclude(q, err)
	asked := *q
	// Not to be kept with the connection.
	h.question, h.bind = question{answer: asked.answer[:0]}, pgproto3.Bind{}
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
		return h.Ask(ctx, time.Until(asked.until), asked.statement, asked.params...)
	}
	return answer, err
}

// errDeallocated means that the server does not know the statement any more, and
// nothing was executed.
var errDeallocated = errors.New("prepared statement does not exist")

// conclude says what came of a question that has been read to its end.
func (h *Hold) conclude(q *question, err error) (string, error) {
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
func (h *Hold) receive(q *question) error {
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

func (h *Hold) receiveMessage(q *question) (isIdle bool, err error) {
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

// interruption ends a read when a context ends, or at a time.
type interruption struct {
	socket net.Conn
	alarms *Alarms
	alarm  Alarm
	stop   func() bool // for the context
	ring   func()      // ends what is being written as well
	leave  func()

	// mu orders the deadline that interrupts against what follows the read.
	mu    sync.Mutex
	over  bool
	fired bool
}

func newInterruption(h *Hold) *interruption {
	i := &interruption{socket: h.socket()}
	i.ring, i.leave = func() { i.fire(net.Conn.SetDeadline) }, func() { i.fire(net.Conn.SetReadDeadline) }
	return i
}

func (i *interruption) on(ctx context.Context, at time.Time) {
	i.alarms.Set(&i.alarm, at, i.ring)
	i.stop = nil
	if ctx.Done() != nil {
		i.stop = context.AfterFunc(ctx, i.leave)
	}
}

func (i *interruption) fire(end func(net.Conn, time.Time) error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if !i.over {
		i.fired = true
		_ = end(i.socket, past)
	}
}

// off sees to it that nothing is interrupted from now on. It reports whether the
// interruption can be used again, and else whether it did interrupt the read.
func (i *interruption) off() (isUnused, fired bool) {
	calledOff := i.alarms.Off(&i.alarm)
	stopped := i.stop == nil || i.stop()
	i.stop = nil
	if calledOff && stopped {
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
