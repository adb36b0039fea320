package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pgadvisory/pgadvisory/advisory"
)

const (
	createSchemaSQL = "CREATE SCHEMA IF NOT EXISTS fencing"

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
//
// A pooler is refused: one that keeps no session would leave the lock behind.
func (locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if err := refusePooler(ctx, conn); err != nil {
		return err
	}
	for {
		var locked bool
		err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock("+lockKey.SQL()+")").Scan(&locked)
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

// refusePooler asks without a prepared statement, which a pooler may not keep
// either.
func refusePooler(ctx context.Context, conn *sql.Conn) error {
	return conn.Raw(func(driverConn any) error {
		pgConn := driverConn.(*stdlib.Conn).Conn().PgConn()
		results, err := pgConn.Exec(ctx, "SELECT pg_catalog.pg_backend_pid()").ReadAll()
		if err != nil {
			return fmt.Errorf("lock: %w", err)
		}
		if pid := string(results[0].Rows[0][0]); pid != strconv.FormatUint(uint64(pgConn.PID()), 10) {
			return fmt.Errorf("%w: the session's backend is %s and the connection was told %d; connect to the server itself",
				advisory.ErrPooler, pid, pgConn.PID())
		}
		return nil
	})
}

func waitEnded(ctx context.Context) error {
	return fmt.Errorf("waiting for another run of the migrations: %w", ctx.Err())
}

// SessionUnlock reports as an error that the lock was not held.
func (locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, unlockLimit)
	defer cancel()
	var owned bool
	err := conn.QueryRowContext(ctx, "SELECT pg_advisory_unlock("+lockKey.SQL()+")").Scan(&owned)
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	err := conn.Raw(func(driverConn any) error {
		return driverConn.(*stdlib.Conn).Conn().Close(ctx)
	})
	if errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}
