package fencing_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/advisory"
	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

// limit bounds every wait for something that is expected to happen.
const limit = time.Minute

// bundle is a database in which fencing is installed.
type bundle struct {
	db       *pgtest.Database
	pool     *pgxpool.Pool
	fencer   *fencing.Fencer // on pool
	observer *pgx.Conn       // looks at the server from outside
}

func setup(t *testing.T) *bundle {
	t.Helper()
	return setupOn(t, pgtest.New(t))
}

func setupOn(t *testing.T, db *pgtest.Database) *bundle {
	t.Helper()
	b := &bundle{db: db, pool: db.Pool(t, large), observer: db.Conn(t)}
	b.fencer = newFencer(t, b.pool, nil, nil)
	return b
}

func large(c *pgxpool.Config) { c.MaxConns = 10 }

// with is a setting that each session of a pool starts with, as if its role had
// it.
func with(name, value string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams[name] = value }
}

func newFencer(t *testing.T, pool *pgxpool.Pool, locks *advisory.Config, config *fencing.Config) *fencing.Fencer {
	t.Helper()
	locker, err := advisory.New(pool, locks)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		require.NoError(t, locker.Close(ctx))
	})
	fencer, err := fencing.New(locker, config)
	require.NoError(t, err)
	return fencer
}

// another is a Fencer as a second process would have it.
func (b *bundle) another(t *testing.T, configure ...func(*pgxpool.Config)) *fencing.Fencer {
	t.Helper()
	return newFencer(t, b.db.Pool(t, append(configure, large)...), nil, nil)
}

// guarded creates a table with two rows and guards it. The name is written as
// in SQL.
func (b *bundle) guarded(t *testing.T, table, resource string) {
	t.Helper()
	b.exec(t, fmt.Sprintf(`CREATE TABLE %s (id int PRIMARY KEY, note text)`, table))
	b.exec(t, fmt.Sprintf(`INSERT INTO %s VALUES (1, 'one'), (2, 'two')`, table))
	require.NoError(t, fencing.Guard(t.Context(), b.pool, table, resource))
}

// superseded returns two holdings of the resource, of which the first is over.
func (b *bundle) superseded(t *testing.T, resource string) (old, current *fencing.Lease) {
	t.Helper()
	old = b.lock(t, b.fencer, resource)
	require.NoError(t, old.Unlock(t.Context()))
	current = b.lock(t, b.fencer, resource)
	require.Greater(t, current.Token(), old.Token())
	return old, current
}

func (b *bundle) lock(t *testing.T, f *fencing.Fencer, resource string) *fencing.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	lease, err := f.Lock(ctx, resource)
	require.NoError(t, err)
	return lease
}

func (b *bundle) exec(t *testing.T, sql string, args ...any) {
	t.Helper()
	_, err := b.observer.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

// one returns the only value that a query selects.
func one[T any](t *testing.T, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, sql string, args ...any,
) T {
	t.Helper()
	var value T
	require.NoError(t, db.QueryRow(t.Context(), sql, args...).Scan(&value))
	return value
}

// contents is all that is in a table.
func (b *bundle) contents(t *testing.T, table string) string {
	t.Helper()
	return one[string](t, b.observer, fmt.Sprintf(
		`SELECT coalesce(string_agg(x::text, ' ' ORDER BY x::text), '') FROM %s AS x`, table))
}

// mark is the token that was issued for the resource last, and 0 if none was.
func (b *bundle) mark(t *testing.T, resource string) fencing.Token {
	t.Helper()
	return one[fencing.Token](t, b.observer,
		`SELECT coalesce(max(mark), 0) FROM fencing.resource WHERE name = $1`, resource)
}

const advisoryLocksSQL = `SELECT count(*) FROM pg_catalog.pg_locks
	WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())`

func (b *bundle) waitForNoLock(t *testing.T) {
	t.Helper()
	b.waitFor(t, "no advisory lock is left", `SELECT (`+advisoryLocksSQL+`) = 0`)
}

// terminate ends the session of a lease, so that its lock is free and its
// token is not.
func (b *bundle) terminate(t *testing.T, lease *fencing.Lease) {
	t.Helper()
	b.exec(t, `SELECT pg_terminate_backend($1)`, lease.BackendPID())
	b.waitFor(t, "the backend is gone",
		`SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity WHERE pid = $1)`, lease.BackendPID())
}

// waitFor polls until the query is true.
func (b *bundle) waitFor(t *testing.T, what, query string, args ...any) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ticker := time.NewTicker(5 * time.Millisecond)
	defer ticker.Stop()
	for {
		var done bool
		err := b.observer.QueryRow(ctx, query, args...).Scan(&done)
		require.NoError(t, err, "waiting until %s", what)
		if done {
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			require.FailNow(t, "waited too long", "until %s", what)
		}
	}
}

// write is a write to a table that guarded made, by which two writes don't
// collide.
func write(ctx context.Context, table string, id int) func(pgx.Tx) error {
	return func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, fmt.Sprintf(`INSERT INTO %s VALUES (%d, 'written')`, table, id))
		return err
	}
}

func requireCode(t *testing.T, err error, code string) {
	t.Helper()
	var pgErr *pgconn.PgError
	require.ErrorAs(t, err, &pgErr)
	require.Equal(t, code, pgErr.Code, "%s", pgErr.Message)
}

// receive waits for what a goroutine of the test sends.
func receive[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case value := <-c:
		return value
	case <-time.After(limit):
		require.FailNow(t, "nothing came in time")
		panic("not reached")
	}
}

// attempt is the outcome of a Lock on another goroutine.
type attempt struct {
	lease *fencing.Lease
	err   error
}

func lockInBackground(ctx context.Context, f *fencing.Fencer, resource string) <-chan attempt {
	result := make(chan attempt, 1)
	// Ends with Lock; the test receives its result.
	go func() {
		lease, err := f.Lock(ctx, resource)
		result <- attempt{lease, err}
	}()
	return result
}
