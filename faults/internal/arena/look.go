//go:build unix

package arena

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/faults/internal/history"
)

// Contents says what is in the tables of each key, with the rows of one segment.
func (a *Arena) Contents(ctx context.Context, segment int) ([]history.Event, error) {
	var events []history.Event
	err := a.Do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		for _, key := range a.keys {
			t, era := &history.Tables{}, 0
			if err := conn.QueryRow(ctx, fmt.Sprintf(contentSQL, key), segment).Scan(&t.Register, &t.Older, &t.Mark, &t.Marks, &t.Rows, &era); err != nil {
				return err
			}
			events = append(events, history.Event{Time: history.Now(), Kind: history.Content, Key: key, Era: era, Content: t})
		}
		return nil
	})
	return events, err
}

// Locks names the advisory locks that are there after the given time, or as soon
// as there is none nothing.
func (a *Arena) Locks(ctx context.Context, within time.Duration) (string, error) {
	return a.left(ctx, locksSQL, within)
}

// Sessions is Locks for the sessions of clients.
func (a *Arena) Sessions(ctx context.Context, within time.Duration) (string, error) {
	return a.left(ctx, sessionsSQL, within)
}

func (a *Arena) left(ctx context.Context, sql string, within time.Duration) (left string, err error) {
	deadline := time.Now().Add(within)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	err = a.Do(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		for {
			if err := conn.QueryRow(ctx, sql).Scan(&left); err != nil || left == "" || time.Now().After(deadline) {
				return err
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	return left, err
}
