package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pgadvisory/pgadvisory/advisory"
)

const (
	createSchemaSQL = "CREATE SCHEMA fencing"

	// dropSchemaSQL removes what Up made outside of the migrations, once they
	// are all undone. It fails if the schema holds anything else.
	dropSchemaSQL = "DROP TABLE fencing.migration; DROP SCHEMA fencing"

	// unlockLimit bounds the unlock, which runs when ctx may have ended.
	unlockLimit = 10 * time.Second
)

var lockKey = advisory.Name("pgadvisory: migrations of fencing")

// locker keeps concurrent runs apart with a lock on the very connection that
// migrates: if the lock is lost, so is the connection.
type locker struct{}

// SessionLock waits for the lock. It asks again and again instead of waiting
// on the server, where a waiting session holds back CREATE INDEX CONCURRENTLY
// and with it, perhaps, the holder.
func (locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	for {
		var locked bool
		err := conn.QueryRowContext(ctx, "SELECT pg_catalog.pg_try_advisory_lock("+lockKey.SQL()+")").Scan(&locked)
		switch {
		case err != nil && ctx.Err() != nil:
			return errors.Join(waitEnded(ctx), closeSession(ctx, conn))
		case err != nil:
			return errors.Join(fmt.Errorf("lock: %w", err), closeSession(ctx, conn))
		case locked:
			return nil
		}
		select {
		case <-time.After(50*time.Millisecond + rand.N(50*time.Millisecond)):
		case <-ctx.Done():
			return waitEnded(ctx)
		}
	}
}

func waitEnded(ctx context.Context) error {
	return fmt.Errorf("waiting for another run of the migrations: %w", ctx.Err())
}

// SessionUnlock reports as an error that the lock was not held.
func (locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, unlockLimit)
	defer cancel()
	var owned bool
	err := conn.QueryRowContext(ctx, "SELECT pg_catalog.pg_advisory_unlock("+lockKey.SQL()+")").Scan(&owned)
	switch {
	case err != nil:
		return errors.Join(fmt.Errorf("unlock: %w", err), closeSession(ctx, conn))
	case !owned:
		return fmt.Errorf("unlock: %w: another run may have migrated at the same time", advisory.ErrNotOwner)
	default:
		return nil
	}
}

// closeSession ends a session that may hold the lock, so that it does not
// return to the pool.
func closeSession(ctx context.Context, conn *sql.Conn) error {
	err := conn.Raw(func(driverConn any) error {
		return closeConn(ctx, driverConn.(*session).Conn.Conn())
	})
	if errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}
