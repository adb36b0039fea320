package advisory

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/lockproto"
)

// Slice is how long one wait on the server lasts.
const Slice = lockproto.Slice

// ExecOnSession runs SQL on the session that holds the lock, as nothing outside
// of this package can.
func ExecOnSession(k *Lock, sql string) error {
	return onSession(k, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.PgConn().Exec(ctx, sql).Close()
	})
}

// OnSession runs fn with the connection that holds the lock.
func OnSession(k *Lock, fn func(*pgx.Conn)) error {
	return onSession(k, func(_ context.Context, conn *pgx.Conn) error {
		fn(conn)
		return nil
	})
}

func onSession(k *Lock, fn func(context.Context, *pgx.Conn) error) error {
	if err := k.conn.lock(context.Background()); err != nil {
		return err
	}
	defer k.conn.unlock()
	if loss := k.conn.hold.Unwatch(time.Second); loss != nil {
		return loss.Cause
	}
	defer k.conn.watch()
	return k.conn.hold.Run(context.Background(), time.Minute, fn)
}

// Waiting counts the calls that wait in the Locker's queue for key.
func Waiting(l *Locker, key Key) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.queues[key.lockID()]; q != nil {
		return len(q.waiters)
	}
	return 0
}

// Leftovers says what a Locker still has under way or counts as held, and is
// empty when that is nothing.
func Leftovers(l *Locker) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pinned == 0 && l.releasing == 0 && len(l.queues) == 0 && len(l.sessions) == 0 {
		return ""
	}
	text := fmt.Sprintf("%d pinned, %d releasing, %d sessions", l.pinned, l.releasing, len(l.sessions))
	for id, q := range l.queues {
		text += fmt.Sprintf(", queue %+v: %d waiters, %d holders, phase %d", id, len(q.waiters), len(q.holders), q.phase)
	}
	return text
}

// Queued counts the operations that wait for a Session's next round trip.
func Queued(s *Session) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queue)
}

// WithDefaults is the config that a Locker made by New has.
func WithDefaults(c *Config) (Config, error) { return c.withDefaults(defaultReserve) }

// Passes reports whether an error of a campaign may be gone at the next one.
var Passes = passes
