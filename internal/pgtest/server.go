package pgtest

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
)

// A Server is one PostgreSQL for tests and examples. Its methods are safe for
// concurrent use.
type Server struct {
	provider string
	version  int
	backend  *backend
	template template
	close    func() error
}

// Start chooses a provider as the package documentation describes, starts a
// server and writes one line to out that says which one and why. On failure
// nothing is left running, and the error says for each provider why it was not
// taken.
//
// ctx bounds the start only. The server lives until [Server.Close], or until
// this process ends in whatever way.
func Start(ctx context.Context, out io.Writer) (*Server, error) {
	forced := forcedProvider()
	b, name, notes, err := choose(ctx, forced, providers)
	if err != nil {
		return nil, err
	}
	s := newServer(name, b)
	text, err := s.askVersion(ctx)
	if err != nil {
		// The failure at hand is the one to report.
		_ = s.Close()
		return nil, fmt.Errorf("%w: %s: %w", ErrNoServer, name, err)
	}
	if forced != "" {
		notes = append(notes, "no other was tried")
	}
	line := fmt.Sprintf("pgtest: PostgreSQL %s, provider %s (%s)", text, name, b.detail)
	if len(notes) > 0 {
		line += "; " + strings.Join(notes, "; ")
	}
	if _, err := fmt.Fprintln(out, line); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("pgtest: announce the server: %w", err)
	}
	return s, nil
}

func newServer(provider string, b *backend) *Server {
	s := &Server{provider: provider, backend: b, template: template{name: uniqueName("template"), dsn: b.dsn}}
	s.close = sync.OnceValue(s.stop)
	return s
}

// DSN returns the URL of the server's maintenance database, as a superuser. It
// is DATABASE_URL if that is where the server comes from, as a URL, and with an
// sslmode that leaves one way to connect.
func (s *Server) DSN() string { return s.backend.dsn }

// Version returns the server's server_version_num.
func (s *Server) Version() int { return s.version }

// Provider returns the name of the provider: url, docker, installed or embedded.
func (s *Server) Provider() string { return s.provider }

// Log returns what the server has logged so far, or [ErrNoLog].
func (s *Server) Log(ctx context.Context) (string, error) { return s.backend.log(ctx) }

// Close stops the server and removes its files. Of a given server it only drops
// what this package has created. It waits until that is done. Later calls
// return the first result.
func (s *Server) Close() error { return s.close() }

func (s *Server) stop() error {
	// A server of our own takes the template with it.
	var dropErr error
	if s.provider == givenProvider {
		dropErr = s.template.drop()
	}
	if err := s.backend.stop(); err != nil {
		return fmt.Errorf("pgtest: stop the server: %w", err)
	}
	return dropErr
}

// askVersion connects once, also to see that the server is there, and returns
// the version as text.
func (s *Server) askVersion(ctx context.Context) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, closeLimit)
	defer cancel()
	err = withConn(ctx, s.backend.dsn, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sqlVersion).Scan(&s.version, &text)
	})
	return text, err
}

// withConn runs f on a connection of its own.
func withConn(ctx context.Context, dsn string, f func(*pgx.Conn) error) error {
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		// Whether f did its work doesn't depend on the goodbye.
		_ = conn.Close(ctx)
	}()
	return f(conn)
}
