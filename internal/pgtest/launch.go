package pgtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// A Shutdown is a way to end a server, by the signal that asks for it.
type Shutdown string

const (
	// Fast ends the sessions, writes all to disk, and sends it to the standbys.
	Fast Shutdown = "INT"
	// Immediate is like a crash: the next start has to recover.
	Immediate Shutdown = "QUIT"
)

// shutdownLimit bounds the end of a server, and its start again.
const shutdownLimit = 2 * time.Minute

var errNotOurs = errors.New("pgtest: the server was not started from installed binaries by this process")

// Launch is [StartWith] for what is not a test. Whoever calls it calls Close of
// the [Database.Server]; on an error nothing is left. Where no server binaries
// are installed the error says what to install.
func Launch(ctx context.Context, settings ...string) (*Database, error) {
	db, err := launch(ctx, source{settings: settings})
	if err != nil {
		return nil, err
	}
	if err := migrateDSN(ctx, db.DSN); err != nil {
		return nil, errors.Join(err, db.Server.Close())
	}
	return db, nil
}

func launch(ctx context.Context, from source) (*Database, error) {
	var programs []string
	if from.conninfo != "" {
		programs = append(programs, basebackup)
	}
	bin, err := findOwnBinDir(ctx, programs...)
	if err != nil {
		return nil, err
	}
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	b, err := serve(ctx, bin, as, from, password())
	if err != nil {
		return nil, err
	}
	s := newServer("installed", b)
	if _, err := s.askVersion(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return &Database{Name: "postgres", DSN: s.DSN(), Server: s}, nil
}

// Restart ends the server and starts it again at the same address, and waits
// until it lets its superuser in. It works for servers that were started from
// installed binaries.
func (s *Server) Restart(ctx context.Context, how Shutdown) error {
	if s.backend.order == nil {
		return errNotOurs
	}
	ctx, cancel := context.WithTimeout(ctx, shutdownLimit)
	defer cancel()
	before, err := s.startTime(ctx)
	if err != nil {
		return fmt.Errorf("pgtest: restart: %w", err)
	}
	if err := s.backend.order("restart " + string(how)); err != nil {
		return fmt.Errorf("pgtest: restart: %w", err)
	}
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		now, err := s.startTime(ctx)
		if err == nil && !now.Equal(before) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("pgtest: restart: %w", errors.Join(ctx.Err(), err))
		}
	}
}

func (s *Server) startTime(ctx context.Context) (start time.Time, err error) {
	err = withConn(ctx, s.backend.dsn, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sqlStartTime).Scan(&start)
	})
	return start, err
}

// Shutdown ends the server in that way, waits for it, and removes its files.
// Close, which does the same in its own way, needs not be called after it. It
// works for servers that were started from installed binaries.
func (s *Server) Shutdown(how Shutdown) error {
	if s.backend.order == nil {
		return errNotOurs
	}
	if err := s.backend.order("stop " + string(how)); err != nil {
		return fmt.Errorf("pgtest: shut down: %w", err)
	}
	if !s.backend.ended(shutdownLimit) {
		return errors.Join(fmt.Errorf("pgtest: the server has not shut down after %s", shutdownLimit), s.Close())
	}
	return s.Close()
}
