package bench_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3/lock"
	"github.com/redis/go-redis/v9"

	"github.com/pgadvisory/pgadvisory/advisory"
)

// A cycle locks and unlocks once.
type cycle func(ctx context.Context, id int64) error

type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const (
	tryLock     = "SELECT pg_try_advisory_lock($1)"
	unlock      = "SELECT pg_advisory_unlock($1)"
	waitForLock = "SELECT pg_advisory_lock($1)"
)

// yes runs a statement that has to answer true.
func yes(ctx context.Context, db querier, sql string, id int64) error {
	var ok bool
	err := db.QueryRow(ctx, sql, id).Scan(&ok)
	if err == nil && !ok {
		err = advisory.ErrNotAcquired
	}
	return err
}

func rawCycle(ctx context.Context, db querier, id int64) error {
	if err := yes(ctx, db, tryLock, id); err != nil {
		return err
	}
	return yes(ctx, db, unlock, id)
}

// pinned is raw pgx on one connection: the limit, for a lock that has it already.
func pinned(conn *pgxpool.Conn) cycle {
	return func(ctx context.Context, id int64) error { return rawCycle(ctx, conn, id) }
}

// acquired is raw pgx on a connection of the pool.
func acquired(p *pgxpool.Pool) cycle {
	return func(ctx context.Context, id int64) error {
		conn, err := p.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		return rawCycle(ctx, conn, id)
	}
}

// sqlConn is database/sql with a connection for each lock.
func sqlConn(db *sql.DB) cycle {
	return func(ctx context.Context, id int64) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		var ok bool
		if err := conn.QueryRowContext(ctx, tryLock, id).Scan(&ok); err != nil {
			return err
		}
		return conn.QueryRowContext(ctx, unlock, id).Scan(&ok)
	}
}

// gooseLocker is the locker of goose's migrations, which has one key for good.
func gooseLocker(b *testing.B, db *sql.DB) cycle {
	b.Helper()
	l := must(lock.NewPostgresSessionLocker())(b)
	return func(ctx context.Context, _ int64) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		if err := l.SessionLock(ctx, conn); err != nil {
			return err
		}
		return l.SessionUnlock(ctx, conn)
	}
}

func sqlDB(b *testing.B, p *pgxpool.Pool, size int) *sql.DB {
	b.Helper()
	db := stdlib.OpenDB(*p.Config().ConnConfig)
	db.SetMaxOpenConns(size)
	db.SetMaxIdleConns(size)
	b.Cleanup(func() { check(b, db.Close()) })
	return db
}

const ttl = time.Minute

func bsmLock(client *redis.Client) cycle {
	l := redislock.New(client)
	return func(ctx context.Context, id int64) error {
		held, err := l.Obtain(ctx, redisKey(id), ttl, nil)
		if err != nil {
			return err
		}
		return held.Release(ctx)
	}
}

func redsyncLock(client *redis.Client) cycle {
	rs := redsync.New(redsyncpool.NewPool(client))
	return func(ctx context.Context, id int64) error {
		m := rs.NewMutex(redisKey(id), redsync.WithExpiry(ttl))
		if err := m.TryLockContext(ctx); err != nil {
			return err
		}
		_, err := m.UnlockContext(ctx)
		return err
	}
}

func redisKey(id int64) string { return "lock:" + string(rune('a'+id%26)) + time.Duration(id).String() }

// tries is what a Locker and a Session have in common.
type tries interface {
	TryLock(ctx context.Context, key advisory.Key) (*advisory.Lock, error)
}

func cycleOf(l tries) cycle {
	return func(ctx context.Context, id int64) error {
		held, err := l.TryLock(ctx, advisory.ID(id))
		if err != nil {
			return err
		}
		return held.Unlock(ctx)
	}
}
