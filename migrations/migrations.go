package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
)

// FS holds the migrations in goose's format; [Export] makes those of other tools
// of them.
//
//go:embed *.sql
var FS embed.FS

// versionTable is where goose records which migrations have run.
const versionTable = "fencing.migration"

// Querier is what [Version] needs of a connection, a pool or a transaction.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Up installs fencing, or brings it to the newest version; it does nothing if
// it is there already. It needs one connection of the pool, which must lead to
// the server itself and not to a pooler (advisory.ErrPooler), and the privilege to
// create a schema in its database.
//
// What another tool has installed stays that tool's, and Up refuses to touch it.
//
// Concurrent calls, in other processes too, wait for each other; ctx bounds the
// wait and the migrations. Each migration is one transaction: after an error
// those before it stay. An error that says that the lock was not held to the
// end means that another may have migrated at the same time.
func Up(ctx context.Context, pool *pgxpool.Pool) error {
	return run(ctx, pool, "up", createSchemaSQL, "", func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// Down removes fencing with all marks: tokens that are issued after a new Up
// begin at 1. It refuses, and changes nothing, while a table is guarded or
// something else depends on the schema. Where nothing is installed it does
// nothing. It waits as Up does.
func Down(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return errors.New("migrations: down: the pool is nil")
	}
	if there, err := exists(ctx, pool, "coalesce(to_regclass('"+versionTable+"')::oid, to_regprocedure('fencing.version()')::oid)"); err != nil || !there {
		return err
	}
	return run(ctx, pool, "down", createSchemaSQL, dropSchemaSQL, func(p *goose.Provider) error {
		_, err := p.DownTo(ctx, 0)
		return err
	})
}

// Version returns the number of the last migration that has run, by whichever
// tool, and 0 where fencing is not installed.
func Version(ctx context.Context, db Querier) (int64, error) {
	var version int64
	installed, err := exists(ctx, db, "to_regprocedure('fencing.version()')")
	if err == nil && installed {
		err = db.QueryRow(ctx, "SELECT fencing.version()").Scan(&version)
	}
	if err != nil {
		return 0, fmt.Errorf("migrations: version: %w", err)
	}
	return version, nil
}

func exists(ctx context.Context, db Querier, object string) (is bool, err error) {
	err = db.QueryRow(ctx, "SELECT "+object+" IS NOT NULL").Scan(&is)
	return is, err
}

// refuseForeign refuses what another tool has installed, or a restore that left
// the record out: goose would begin anew. It is called under the lock.
func refuseForeign(ctx context.Context, db *sql.DB) error {
	var installed, recorded bool
	err := db.QueryRowContext(ctx, "SELECT to_regprocedure('fencing.version()') IS NOT NULL, to_regclass($1) IS NOT NULL", versionTable).Scan(&installed, &recorded)
	if err != nil || !installed {
		return err
	}
	if !recorded {
		return errors.New("fencing was installed by another tool, which has its own record of that: go on with that tool")
	}
	err = db.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM "+versionTable+")").Scan(&recorded)
	if err == nil && !recorded {
		err = errors.New("fencing was restored without its rows: restore those of " + versionTable + " too")
	}
	return err
}

func run(ctx context.Context, pool *pgxpool.Pool, verb, first, last string, migrate func(*goose.Provider) error) (err error) {
	if pool == nil {
		return fmt.Errorf("migrations: %s: the pool is nil", verb)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("migrations: %s: %w", verb, err)
		}
	}()

	// One connection, kept from the first use to the last: the lock is on it.
	db := stdlib.OpenDBFromPool(pool)
	db.SetMaxOpenConns(1)
	db.SetMaxIdleConns(1)
	defer func() { err = errors.Join(err, db.Close()) }()

	// goose makes its table before it locks, hence the lock around it; and if
	// the session is lost in between, goose's own one keeps the next apart.
	var lock locker
	if err := onSession(ctx, db, lock.SessionLock); err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, onSession(context.WithoutCancel(ctx), db, lock.SessionUnlock))
	}()
	if err := refuseForeign(ctx, db); err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, FS,
		goose.WithTableName(versionTable),
		goose.WithDisableGlobalRegistry(true),
		goose.WithSessionLocker(lock))
	if err != nil {
		return err
	}
	if err := execute(ctx, db, first); err != nil {
		return err
	}
	if err := migrate(provider); err != nil {
		return err
	}
	return execute(ctx, db, last)
}

func onSession(ctx context.Context, db *sql.DB, do func(context.Context, *sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, conn), conn.Close())
}

func execute(ctx context.Context, db *sql.DB, statement string) error {
	if statement == "" {
		return nil
	}
	_, err := db.ExecContext(ctx, statement)
	return err
}
