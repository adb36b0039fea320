package advisory

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Slice is how long one wait on the server lasts.
const Slice = slice

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
	if err := k.seat.take(context.Background()); err != nil {
		return err
	}
	defer k.seat.pass()
	if loss := k.seat.hold.Unwatch(time.Second); loss != nil {
		return loss.Cause
	}
	defer k.seat.watch()
	return k.seat.hold.Run(context.Background(), time.Minute, fn)
}

// Waiting counts the calls that wait in the Locker's line for key.
func Waiting(l *Locker, key Key) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ln := l.lines[key.tag()]; ln != nil {
		return len(ln.waiters)
	}
	return 0
}

// Leftovers says what a Locker still has under way or counts as held, and is
// empty when that is nothing.
func Leftovers(l *Locker) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.pinned == 0 && l.leaving == 0 && len(l.lines) == 0 && len(l.calls) == 0 && len(l.sessions) == 0 {
		return ""
	}
	text := fmt.Sprintf("%d pinned, %d leaving, %d calls, %d sessions", l.pinned, l.leaving, len(l.calls), len(l.sessions))
	for t, ln := range l.lines {
		text += fmt.Sprintf(", line %+v: %d waiters, %d holders, contended %t", t, len(ln.waiters), len(ln.holders), ln.contended)
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
