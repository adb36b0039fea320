package pgtest

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// closeLimit bounds the wait for a pool or a connection to close.
const closeLimit = time.Minute

// A Database belongs to one test. Advisory locks are scoped to a database, so
// that parallel tests can neither block nor see each other's.
type Database struct {
	Name   string
	DSN    string
	Server *Server
}

// New returns a database of t's own in which the migrations have been run. At
// cleanup whoever is still connected to it is thrown out. The first call in a process starts
// the server; if that fails, every call fails its test with the reason.
func New(t testing.TB) *Database {
	t.Helper()
	return shared.newDatabase(t)
}

func (s *sharedServer) newDatabase(t testing.TB) *Database {
	t.Helper()
	server, err := s.get()
	if err != nil {
		t.Fatal(err)
	}
	db, err := server.newDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.template.recycle(db.Name); err != nil {
			t.Error(err)
		}
	})
	return db
}

func (s *Server) newDatabase(ctx context.Context) (*Database, error) {
	name, err := s.template.clone(ctx)
	if err != nil {
		return nil, err
	}
	dsn, err := withDatabase(s.DSN(), name)
	if err != nil {
		return nil, err
	}
	return &Database{Name: name, DSN: dsn, Server: s}, nil
}

// Named returns the database of another name on the same server. Whether there
// is one is the caller's business.
func (d *Database) Named(t testing.TB, name string) *Database {
	t.Helper()
	dsn, err := withDatabase(d.DSN, name)
	if err != nil {
		t.Fatal(err)
	}
	return &Database{Name: name, DSN: dsn, Server: d.Server}
}

// Pool returns a pool on the database, closed at cleanup. A pool that doesn't
// close, since a connection was never released, fails the test instead of
// hanging it.
func (d *Database) Pool(t testing.TB, configure ...func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range configure {
		f(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := closePool(pool, closeLimit); err != nil {
			t.Error(err)
		}
	})
	return pool
}

// closePool closes a pool, or says what it still waits for after the limit.
func closePool(pool *pgxpool.Pool, limit time.Duration) error {
	closed := make(chan struct{})
	// Ends when the pool is closed. If that never happens it stays, like the
	// connection that it waits for.
	go func() {
		pool.Close()
		close(closed)
	}()
	select {
	case <-closed:
		return nil
	case <-time.After(limit):
		stat := pool.Stat()
		return fmt.Errorf("pgtest: pool not closed after %v: %d connections acquired, %d constructing, %d idle",
			limit, stat.AcquiredConns(), stat.ConstructingConns(), stat.IdleConns())
	}
}

// Conn returns one session in the database, closed at cleanup. It is meant for
// looking at the server's truth from outside of what is being tested.
func (d *Database) Conn(t testing.TB, configure ...func(*pgx.ConnConfig)) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(d.DSN)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range configure {
		f(config)
	}
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
		defer cancel()
		// A test may have had the session killed: nothing is left to close then.
		_ = conn.Close(ctx)
	})
	return conn
}

// Log returns the lines of the server's log that are about sessions in the
// database. It fails t where the log can't be read, see [ErrNoLog].
func (d *Database) Log(t testing.TB) string {
	t.Helper()
	log, err := d.Server.Log(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return linesOf(log, d.Name)
}

// linesOf picks the messages of one database out of a server log.
func linesOf(log, database string) string {
	var b strings.Builder
	marker, mine := logMarker(database), false
	for line := range strings.Lines(log) {
		// The server starts the second and later lines of a message with a tab.
		if !strings.HasPrefix(line, "\t") {
			mine = strings.Contains(line, marker)
		}
		if mine {
			b.WriteString(line)
		}
	}
	return b.String()
}
