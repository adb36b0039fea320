package fencing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
)

const insertSQL = `INSERT INTO exports VALUES ($1, $2)`

func TestExec_writesInOneRoundTrip(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.exec(t, `CREATE TABLE exports (id int PRIMARY KEY, note text, fencing_token bigint)`)
	require.NoError(t, fencing.Guard(t.Context(), b.pool, "exports", "nightly"))
	lease := b.lock(t, b.fencer, "nightly")
	w := new(pgtest.Wire)
	pool := b.db.Pool(t, single, w.On)
	require.NoError(t, pool.Ping(t.Context()))
	for i := range 5 {
		before := w.Sent()
		tag, err := lease.Exec(t.Context(), pool, insertSQL, i, "written")
		require.NoError(t, err)
		require.EqualValues(t, 1, tag.RowsAffected())
		if i > 1 { // the statements are prepared
			require.EqualValues(t, 1, w.Sent()-before, "call %d", i)
		}
	}
	require.Equal(t, 5, one[int](t, b.observer, `SELECT count(*) FROM exports WHERE fencing_token = $1`, lease.Token()))
	require.Empty(t, one[string](t, pool, `SELECT coalesce(current_setting('fencing.stamps', true), '')`), "the stamp ends with the transaction")
	require.Zero(t, pool.Stat().AcquiredConns())
}

// The same on whatever sends batches, in each way in which pgx sends statements, and behind a
// pooler that lends a connection for a transaction.
func TestExec_worksEverywhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", `it's`)
	lease := b.lock(t, b.fencer, `it's`)
	id := 10
	write := func(name string, db fencing.Batcher) {
		t.Helper()
		for range 3 {
			id++
			_, err := lease.Exec(t.Context(), db, insertSQL, id, "written")
			require.NoError(t, err, name)
			require.Equal(t, 1, one[int](t, b.observer, `SELECT count(*) FROM exports WHERE id = $1`, id), name)
		}
		_, err := lease.Exec(t.Context(), db, `UPDATE exports SET note = @note WHERE id = @id`, pgx.NamedArgs{"id": id, "note": "named"})
		require.NoError(t, err, name)
		require.Equal(t, "named", one[string](t, b.observer, `SELECT note FROM exports WHERE id = $1`, id), name)
	}
	conn, err := b.pool.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	write("connection of a pool", conn)
	write("connection", conn.Conn())
	write("something that sends batches", batcher{b.pool})
	pooler := *b.db
	pooler.DSN = b.db.PgBouncer(t, "transaction", "default_pool_size = 2")
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		set := func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode }
		write(mode.String(), b.db.Pool(t, set))
		if mode == pgx.QueryExecModeExec || mode == pgx.QueryExecModeSimpleProtocol { // the others need statements that stay
			write("pooler, "+mode.String(), pooler.Pool(t, set))
		}
	}
}

type batcher struct{ pool *pgxpool.Pool }

func (b batcher) SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults {
	return b.pool.SendBatch(ctx, batch)
}

func TestExec_changesNothingWhenItIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.exec(t, `ALTER TABLE exports ADD CONSTRAINT note UNIQUE (note) DEFERRABLE INITIALLY DEFERRED`)
	old, current := b.superseded(t, "nightly")
	other := b.lock(t, b.fencer, "other")
	pool := b.db.Pool(t)
	for range 3 {
		_, err := old.Exec(t.Context(), pool, insertSQL, 3, "stale")
		var stale *fencing.StaleError
		require.ErrorAs(t, err, &stale)
		require.Equal(t, current.Token(), stale.Current)
		_, err = other.Exec(t.Context(), pool, insertSQL, 3, "unstamped")
		require.ErrorIs(t, err, fencing.ErrUnstamped)
		_, err = current.Exec(t.Context(), pool, insertSQL, 1, "twice")
		requireCode(t, err, "23505")
		_, err = current.Exec(t.Context(), pool, insertSQL, 3, "one") // found at the commit
		requireCode(t, err, "23505")
		_, err = current.Exec(t.Context(), pool, `INSERT INTO nowhere VALUES (1)`)
		requireCode(t, err, "42P01")
		require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
		require.Zero(t, pool.Stat().AcquiredConns())
	}
	_, err := current.Exec(t.Context(), pool, insertSQL, 3, "three")
	require.NoError(t, err)
	b.exec(t, `ALTER FUNCTION fencing.stamp(text, bigint, interval) RENAME TO lost`)
	_, err = current.Exec(t.Context(), b.db.Pool(t), insertSQL, 4, "four")
	require.ErrorIs(t, err, fencing.ErrNotInstalled)
}

func TestExec_refusesBadUse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	conn, pool := b.db.Conn(t), b.db.Pool(t)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	ctx := t.Context()
	exec := func(db fencing.Batcher, sql string) error {
		_, err := lease.Exec(ctx, db, sql)
		return err
	}
	for name, err := range map[string]error{
		"no database":        exec(nil, `SELECT 1`),
		"no statement":       exec(pool, ` -- none`),
		"commit":             exec(pool, `COMMIT`),
		"begin":              exec(pool, `/* a */ begin`),
		"prepared":           exec(pool, `PREPARE TRANSACTION 'x'`),
		"several, commit":    exec(pool, `DELETE FROM exports; COMMIT`),
		"copy":               exec(pool, `COPY exports FROM STDIN`),
		"transaction":        exec(tx, `DELETE FROM exports`),
		"in a transaction":   exec(conn, `DELETE FROM exports`),
		"no batch":           lease.SendBatch(ctx, pool, nil),
		"empty batch":        lease.SendBatch(ctx, pool, &pgx.Batch{}),
		"batch of its own":   lease.SendBatch(ctx, pool, beginning()),
		"lease of no fencer": (&fencing.Lease{}).SendBatch(ctx, pool, &pgx.Batch{}),
	} {
		require.Error(t, err, name)
		require.ErrorContains(t, err, "fencing: write for resource", name)
	}
	require.NoError(t, tx.Rollback(t.Context()))
	require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))
	require.Zero(t, pool.Stat().AcquiredConns())
}

func beginning() *pgx.Batch {
	batch := &pgx.Batch{}
	batch.BeginTx(pgx.TxOptions{})
	batch.Queue(`DELETE FROM exports`)
	return batch
}

func TestExec_addsToWhatTheSessionHas(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	b.guarded(t, "imports", "hourly")
	nightly, hourly := b.lock(t, b.fencer, "nightly"), b.lock(t, b.fencer, "hourly")
	conn := b.db.Conn(t)
	_, err := conn.Exec(t.Context(), `SELECT set_config('fencing.stamps', jsonb_build_object('hourly', $1::bigint)::text, false)`, int64(hourly.Token()))
	require.NoError(t, err)
	for i := range 3 {
		_, err := nightly.Exec(t.Context(), conn, `WITH e AS (INSERT INTO exports VALUES ($1)) INSERT INTO imports VALUES ($1)`, 10+i)
		require.NoError(t, err)
	}
}

func TestSendBatch_isOneTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease, pool := b.lock(t, b.fencer, "nightly"), b.db.Pool(t)
	for range 3 {
		var notes []string
		batch := &pgx.Batch{}
		batch.Queue(insertSQL, 3, "three")
		batch.Queue(`SELECT note FROM exports ORDER BY id`).Query(func(rows pgx.Rows) (err error) {
			notes, err = pgx.CollectRows(rows, pgx.RowTo[string])
			return err
		})
		batch.Queue(`DELETE FROM exports WHERE id = 3`).Exec(func(tag pgconn.CommandTag) error {
			if tag.RowsAffected() != 1 {
				return errors.New("no row")
			}
			return nil
		})
		require.NoError(t, lease.SendBatch(t.Context(), pool, batch))
		require.Equal(t, []string{"one", "two", "three"}, notes)
		require.Equal(t, 3, batch.Len(), "the caller's batch is as it was")
	}
	failing := &pgx.Batch{}
	failing.Queue(insertSQL, 4, "four")
	failing.Queue(insertSQL, 1, "twice")
	failing.Queue(insertSQL, 5, "five")
	requireCode(t, lease.SendBatch(t.Context(), pool, failing), "23505")
	require.Equal(t, "(1,one) (2,two)", b.contents(t, "exports"))

	mine := errors.New("mine")
	batch := &pgx.Batch{}
	batch.Queue(insertSQL, 6, "six").Exec(func(pgconn.CommandTag) error { return mine })
	require.ErrorIs(t, lease.SendBatch(t.Context(), pool, batch), mine)
	require.Equal(t, "(1,one) (2,two) (6,six)", b.contents(t, "exports"), "what the server has done stays")
	require.Zero(t, pool.Stat().AcquiredConns())
}

func TestExec_endsWithItsContext(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.guarded(t, "exports", "nightly")
	lease := b.lock(t, b.fencer, "nightly")
	blocker, err := b.db.Conn(t).Begin(t.Context())
	require.NoError(t, err)
	_, err = blocker.Exec(t.Context(), `LOCK TABLE exports`)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err = lease.Exec(ctx, b.pool, insertSQL, 3, "three")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, blocker.Rollback(t.Context()))
	// Not before the server has ended what was given up.
	b.waitFor(t, "nothing is under way", `SELECT NOT EXISTS (SELECT FROM pg_catalog.pg_stat_activity
		WHERE datname = current_database() AND state = 'active' AND pid <> pg_backend_pid())`)
	_, err = lease.Exec(t.Context(), b.pool, `DELETE FROM exports WHERE id = 3`)
	require.NoError(t, err)
}
