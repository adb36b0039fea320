package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
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
// the server itself and not to a pooler (advisory.ErrPooler). The first run needs the
// privilege to create a schema in its database, and makes its role the owner of
// the schema.
//
// Later runs need that role, and no other privilege. Up refuses a schema that
// belongs to another role, or that holds objects of another role (ErrOtherOwner):
// that role could have put anything there. It also refuses to begin in a schema that
// is not empty, and to touch what another tool has installed.
//
// While Up runs, search_path is pg_catalog, pg_temp on its connection, so that
// nothing is looked up elsewhere. It is put back at the end.
//
// Concurrent calls, in other processes too, wait for each other; ctx bounds the
// wait and the migrations. Each migration is one transaction: after an error
// those before it stay. An error that says that the lock was not held to the
// end means that another may have migrated at the same time.
func Up(ctx context.Context, pool *pgxpool.Pool) error {
	return run(ctx, pool, "up", func(db *sql.DB, p *goose.Provider, s state) error {
		if !s.exists {
			if err := execute(ctx, db, createSchemaSQL); err != nil {
				return err
			}
		}
		_, err := p.Up(ctx)
		return err
	})
}

// Down removes fencing with all marks: tokens that are issued after a new Up
// begin at 1. It refuses, and changes nothing, while a table is guarded or
// something else depends on the schema, and where Up refuses. Where nothing is
// installed it does nothing. It waits as Up does, and needs the role that owns the
// schema.
func Down(ctx context.Context, pool *pgxpool.Pool) error {
	if pool == nil {
		return errors.New("migrations: down: the pool is nil")
	}
	s, err := stateOf(ctx, pool)
	if err != nil {
		return fmt.Errorf("migrations: down: %w", err)
	}
	if !s.recorded && s.version == 0 {
		return nil
	}
	return run(ctx, pool, "down", func(db *sql.DB, p *goose.Provider, s state) error {
		if !s.recorded {
			return nil // another run has removed it
		}
		if _, err := p.DownTo(ctx, 0); err != nil {
			return err
		}
		return execute(ctx, db, dropSchemaSQL)
	})
}

// Version returns the number of the last migration that has run, by whichever
// tool, and 0 where fencing is not installed. It needs no privilege and calls
// nothing of the schema.
func Version(ctx context.Context, db Querier) (int64, error) {
	version, err := versionOf(ctx, db)
	if err != nil {
		return 0, fmt.Errorf("migrations: version: %w", err)
	}
	return version, nil
}

// refuseUnrecorded refuses what was restored without the record: goose would begin
// anew.
func refuseUnrecorded(ctx context.Context, db *sql.DB, s state) error {
	if s.version == 0 {
		return nil
	}
	var recorded bool
	err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM "+versionTable+")").Scan(&recorded)
	if err == nil && !recorded {
		err = errors.New("fencing was restored without its rows: restore those of " + versionTable + " too")
	}
	return err
}

func run(ctx context.Context, pool *pgxpool.Pool, verb string, migrate func(*sql.DB, *goose.Provider, state) error) (err error) {
	if pool == nil {
		return fmt.Errorf("migrations: %s: the pool is nil", verb)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("migrations: %s: %w", verb, err)
		}
	}()

	// One connection, kept from the first use to the last: the lock is on it.
	db := sql.OpenDB(newConnector(pool))
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
	var s state
	err = onSession(ctx, db, func(ctx context.Context, conn *sql.Conn) error {
		return conn.Raw(func(driverConn any) (err error) {
			s, err = stateOf(ctx, driverConn.(*session).Conn.Conn())
			return err
		})
	})
	if err == nil {
		err = s.refusal()
	}
	if err == nil {
		err = refuseUnrecorded(ctx, db, s)
	}
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, db, FS,
		goose.WithTableName(versionTable),
		goose.WithDisableGlobalRegistry(true),
		goose.WithSessionLocker(lock))
	if err != nil {
		return err
	}
	return migrate(db, provider, s)
}

func onSession(ctx context.Context, db *sql.DB, do func(context.Context, *sql.Conn) error) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	return errors.Join(do(ctx, conn), conn.Close())
}

func execute(ctx context.Context, db *sql.DB, statement string) error {
	_, err := db.ExecContext(ctx, statement)
	return err
}
