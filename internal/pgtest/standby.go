package pgtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/faultproxy"
)

// basebackup is the program that makes a standby.
const basebackup = "pg_basebackup"

// A Standby follows a primary by streaming, asynchronous replication. It is used
// through its maintenance database.
type Standby struct {
	*Database

	primary     *Database
	replication *faultproxy.Proxy
}

// CheckStandby returns why [LaunchStandby] can't work here, or nil.
func CheckStandby(ctx context.Context) error {
	_, err := findOwnBinDir(ctx, basebackup)
	return err
}

// LaunchStandby starts a standby of a server that [Launch] or [StartWith] has
// started. settings are its own, besides those of every server. Whoever calls it
// calls [Standby.Close]; on an error nothing is left.
func LaunchStandby(ctx context.Context, primary *Database, settings ...string) (*Standby, error) {
	config, err := pgx.ParseConfig(primary.DSN)
	if err != nil {
		return nil, err
	}
	proxy, err := faultproxy.Listen(net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))))
	if err != nil {
		return nil, err
	}
	db, err := launch(ctx, source{
		conninfo: fmt.Sprintf("host=127.0.0.1 port=%d user=postgres sslmode=disable application_name=pgtest_standby",
			proxy.Addr().Port),
		settings: append([]string{"hot_standby=on", "wal_retrieve_retry_interval=100ms"}, settings...),
	})
	if err != nil {
		proxy.Close()
		return nil, err
	}
	return &Standby{Database: db, primary: primary, replication: proxy}, nil
}

// CatchUp waits until the standby has replayed what is written on the primary
// now.
func (s *Standby) CatchUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pairLimit)
	defer cancel()
	var written string
	if err := withConn(ctx, s.primary.DSN, func(conn *pgx.Conn) error {
		return conn.QueryRow(ctx, sqlWritten).Scan(&written)
	}); err != nil {
		return fmt.Errorf("pgtest: how far the primary is: %w", err)
	}
	if err := waitTrue(ctx, s.DSN, sqlReplayed, written); err != nil {
		return fmt.Errorf("pgtest: wait for the standby: %w", err)
	}
	return nil
}

// Cut ends replication. When it returns, nothing that is committed on the
// primary from now on reaches the standby.
func (s *Standby) Cut(ctx context.Context) error {
	s.replication.RefuseNew(true)
	s.replication.Cut()
	ctx, cancel := context.WithTimeout(ctx, pairLimit)
	defer cancel()
	if err := waitTrue(ctx, s.primary.DSN, sqlNoStandby); err != nil {
		return fmt.Errorf("pgtest: wait for the end of replication: %w", err)
	}
	return nil
}

// Restore undoes Cut, unless the standby was promoted meanwhile. It doesn't wait:
// see [Standby.CatchUp].
func (s *Standby) Restore() { s.replication.RefuseNew(false) }

// Promote makes the standby a primary, with what it has received, and waits
// until it is. The old primary is not told.
func (s *Standby) Promote(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, pairLimit)
	defer cancel()
	if err := waitTrue(ctx, s.DSN, sqlPromote); err != nil {
		return fmt.Errorf("pgtest: promote the standby: %w", err)
	}
	return nil
}

// Close stops the standby, promoted or not, and removes its files.
func (s *Standby) Close() error {
	err := s.Server.Close()
	s.replication.Close()
	return err
}

// waitTrue repeats a query until its answer is true.
func waitTrue(ctx context.Context, dsn, sql string, args ...any) error {
	return withConn(ctx, dsn, func(conn *pgx.Conn) error {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for {
			var reached bool
			if err := conn.QueryRow(ctx, sql, args...).Scan(&reached); err != nil {
				return err
			}
			if reached {
				return nil
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return errors.Join(ctx.Err(), errors.New("still false: "+sql))
			}
		}
	})
}
