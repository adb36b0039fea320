package pgscript

import (
	"fmt"
	"maps"
	"net"
	"sync"
	"testing"
)

// A Server accepts sessions until the test ends. It is safe for concurrent use.
type Server struct {
	t        testing.TB
	listener net.Listener
	handlers []Handler
	closing  chan struct{} // closed by Close
	once     sync.Once
	work     sync.WaitGroup

	// mu guards the fields below; nothing blocks under it.
	mu         sync.Mutex
	parameters map[string]string
	sockets    map[net.Conn]struct{}
	sessions   int
	cancels    int
	closed     bool
}

// Serve starts a server on a loopback address that lives until the test ends.
func Serve(t testing.TB, handlers ...Handler) *Server {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{
		t: t, listener: listener, handlers: handlers, closing: make(chan struct{}),
		parameters: map[string]string{
			"server_version": "18.0", "server_encoding": "UTF8", "client_encoding": "UTF8", "DateStyle": "ISO, MDY",
			"TimeZone": "UTC", "integer_datetimes": "on", "standard_conforming_strings": "on", "in_hot_standby": "off",
		},
		sockets: make(map[net.Conn]struct{}),
	}
	s.work.Go(s.accept) // ends when Close closes the listener; Close waits
	t.Cleanup(s.Close)
	return s
}

// DSN is the URL to connect to.
func (s *Server) DSN() string {
	return fmt.Sprintf("postgres://pgscript@%s/pgscript?sslmode=disable", s.listener.Addr())
}

// SetParameter has the sessions to come begin with a value of a setting, such
// as server_version. An empty value takes the setting out.
func (s *Server) SetParameter(name, value string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if value == "" {
		delete(s.parameters, name)
		return
	}
	s.parameters[name] = value
}

// Sessions counts the sessions so far, ended ones included.
func (s *Server) Sessions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions
}

// Open counts the connections that neither side has closed.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sockets)
}

// Cancels counts the cancel requests so far.
func (s *Server) Cancels() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cancels
}

// Close ends all sessions and the server now instead of at the end of the test.
// pgx gives a cancelled query that hangs 15 seconds to end: to close the server
// first spares the wait for them. It may be called again.
func (s *Server) Close() { s.once.Do(s.stop) }

func (s *Server) accept() {
	for {
		socket, err := s.listener.Accept()
		if err != nil {
			return
		}
		// Ends with the socket, which the client or Close closes; Close waits.
		s.work.Go(func() {
			defer func() { _ = socket.Close() }()
			if s.add(socket) {
				newConn(s, socket).serve()
				s.remove(socket)
			}
		})
	}
}

func (s *Server) add(socket net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.sockets[socket] = struct{}{}
	return true
}

func (s *Server) remove(socket net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sockets, socket)
}

// newSession returns the number of a session that begins, and its settings.
func (s *Server) newSession() (number int, parameters map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sessions++
	return s.sessions, maps.Clone(s.parameters)
}

func (s *Server) countCancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancels++
}

// stop ends all sessions, and the server.
func (s *Server) stop() {
	s.mu.Lock()
	s.closed = true
	for socket := range s.sockets {
		_ = socket.Close()
	}
	s.mu.Unlock()
	close(s.closing)
	_ = s.listener.Close()
	s.work.Wait()
}
