package pgscript

import (
	"encoding/binary"
	"errors"
	"io"
	"net"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// errEnded ends a session whose answer was to do so.
var errEnded = errors.New("pgscript: session ended")

// A conn is one connection. Only its own goroutine uses it.
type conn struct {
	server  *Server
	socket  net.Conn
	backend *pgproto3.Backend
	types   *pgtype.Map // not safe for concurrent use

	session    session
	statements map[string]*statement
	portals    map[string]*portal
	skips      bool // until the next Sync, after an error
}

func newConn(s *Server, socket net.Conn) *conn {
	return &conn{
		server: s, socket: socket, backend: pgproto3.NewBackend(socket, socket), types: pgtype.NewMap(),
		statements: make(map[string]*statement), portals: make(map[string]*portal),
	}
}

// serve runs until either side has had enough.
func (c *conn) serve() {
	if c.handshake() != nil {
		return
	}
	for {
		message, err := c.backend.Receive()
		if err != nil || c.handle(message) != nil {
			return
		}
	}
}

func (c *conn) handshake() error {
	for {
		message, err := c.backend.ReceiveStartupMessage()
		if err != nil {
			return err
		}
		switch message.(type) {
		case *pgproto3.SSLRequest, *pgproto3.GSSEncRequest:
			if _, err := io.WriteString(c.socket, "N"); err != nil {
				return err
			}
		case *pgproto3.CancelRequest:
			c.server.countCancel()
			return errEnded
		default:
			return c.welcome()
		}
	}
}

func (c *conn) welcome() error {
	number, parameters := c.server.newSession()
	c.session = session{number: number, status: 'I'}
	c.backend.Send(&pgproto3.AuthenticationOk{})
	for name, value := range parameters {
		c.backend.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
	}
	c.backend.Send(&pgproto3.BackendKeyData{
		ProcessID: uint32(c.session.pid()), SecretKey: binary.BigEndian.AppendUint32(nil, uint32(number)),
	})
	return c.ready()
}

func (c *conn) ready() error {
	c.backend.Send(&pgproto3.ReadyForQuery{TxStatus: c.session.status})
	return c.backend.Flush()
}

// handle returns an error if the session is over.
func (c *conn) handle(message pgproto3.FrontendMessage) error {
	switch m := message.(type) {
	case *pgproto3.Terminate:
		return errEnded
	case *pgproto3.Query:
		return c.script(m.String)
	case *pgproto3.Sync:
		c.skips = false
		return c.ready()
	case *pgproto3.Flush:
		return c.backend.Flush()
	default:
		if c.skips {
			return nil
		}
		return c.extended(message)
	}
}

// script answers a simple query, statement by statement until one fails.
func (c *conn) script(text string) error {
	for _, sql := range statementsOf(text) {
		a := c.answer(Query{SQL: sql, Session: c.session.number})
		failed, err := c.play(a, nil, true)
		if err != nil {
			return err
		}
		if failed {
			break
		}
	}
	return c.ready()
}

// answer asks the handlers, and then the session.
func (c *conn) answer(q Query) *Answer {
	for _, handler := range c.server.handlers {
		if a := handler(q); a != nil && (!q.Describing || a.describes()) {
			return a
		}
	}
	return c.session.answer(q)
}
