//go:build unix

package arena

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// settings are of each server: a lock table that somebody can fill, and an end of
// idle transactions that the workers set themselves.
var settings = []string{"max_connections=80", "max_locks_per_transaction=10", "autovacuum=off"}

// limit bounds each look at a server.
const limit = time.Minute

// Arena is the servers and the tables. Its methods are for one goroutine.
type Arena struct {
	Redis *Redis // nil if no key is locked there

	keys []string

	mu      sync.Mutex // guards primary
	primary *pgtest.Database
	close   func() error
	standby *pgtest.Standby // while one is there to be promoted
}

// Open starts a server and makes the tables of the keys, guarded; and a Redis if
// withRedis. Whoever calls it calls Close.
func Open(ctx context.Context, keys []string, withRedis bool) (*Arena, error) {
	db, err := pgtest.Launch(ctx, settings...)
	if err != nil {
		return nil, err
	}
	a := &Arena{keys: keys, primary: db, close: db.Server.Close}
	err = a.makeTables(ctx)
	if err == nil && withRedis {
		a.Redis, err = openRedis(ctx)
	}
	if err != nil {
		_ = a.Close() // the failure at hand is the one to report
		return nil, err
	}
	return a, nil
}

// Close stops the servers.
func (a *Arena) Close() error {
	if a.Redis != nil {
		if err := a.Redis.Close(); err != nil {
			return err
		}
	}
	if a.standby != nil {
		if err := a.standby.Close(); err != nil {
			return err
		}
	}
	return a.close()
}

// Keys are those whose tables there are.
func (a *Arena) Keys() []string { return a.keys }

// DSN is the primary's.
func (a *Arena) DSN() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.primary.DSN
}

// Addr is the primary's host and port.
func (a *Arena) Addr() (string, error) {
	config, err := pgx.ParseConfig(a.DSN())
	if err != nil {
		return "", err
	}
	return net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))), nil
}

// Restart restarts the primary.
func (a *Arena) Restart(ctx context.Context, how pgtest.Shutdown) error {
	return a.primary.Server.Restart(ctx, how)
}

// Do runs f on a session of its own at the primary.
func (a *Arena) Do(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	conn, err := pgx.Connect(ctx, a.DSN())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }() // f has done its work
	return f(ctx, conn)
}

// Exec runs a statement at the primary.
func (a *Arena) Exec(ctx context.Context, sql string, args ...any) error {
	return a.Do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, args...)
		return err
	})
}

// makeTables makes a register for each key, which is guarded as a whole, and one
// journal for all, of which a column says whose the row is.
func (a *Arena) makeTables(ctx context.Context) error {
	return a.Do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, journalSQL); err != nil {
			return err
		}
		if err := fencing.GuardBy(ctx, conn, "journal", "key"); err != nil {
			return err
		}
		for _, key := range a.keys {
			if _, err := conn.Exec(ctx, fmt.Sprintf(registerSQL, key)); err != nil {
				return err
			}
			if err := fencing.Guard(ctx, conn, "register_"+key, key); err != nil {
				return err
			}
		}
		return nil
	})
}
