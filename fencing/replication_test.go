package fencing_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/pgadvisory/pgadvisory/fencing"
	"github.com/pgadvisory/pgadvisory/internal/pgtest"
	"github.com/pgadvisory/pgadvisory/migrations"
)

// publishedSQL has one table of each kind. Those that a column guards come with
// a row that names no resource, which the publisher allows.
const publishedSQL = `
CREATE TABLE exports (id int PRIMARY KEY, note text, fencing_token bigint);
CREATE TABLE orders (id int PRIMARY KEY, tenant text, note text, fencing_token bigint);
CREATE TABLE parted (id int PRIMARY KEY, note text, fencing_token bigint) PARTITION BY RANGE (id);
CREATE TABLE parted1 PARTITION OF parted FOR VALUES FROM (0) TO (100);
CREATE TABLE parted2 PARTITION OF parted FOR VALUES FROM (100) TO (200) PARTITION BY RANGE (id);
CREATE TABLE parted2a PARTITION OF parted2 DEFAULT;
CREATE TABLE parted_by (id int PRIMARY KEY, tenant text, fencing_token bigint) PARTITION BY RANGE (id);
CREATE TABLE parted_by1 PARTITION OF parted_by FOR VALUES FROM (0) TO (100);
CREATE TABLE parted_by2 PARTITION OF parted_by DEFAULT;
`

var publishedTables = strings.Fields("exports orders parted parted_by")

// replicated is a publisher, of whose tables exports is guarded, and a
// subscriber that has them all guarded. What is installed there belongs to a role
// with no privileges.
func replicated(t *testing.T, viaRoot bool) (publisher, subscriber *bundle) {
	t.Helper()
	server := pgtest.StartWith(t, "wal_level=logical", "wal_retrieve_retry_interval=100ms", "max_logical_replication_workers=8", "max_worker_processes=16")
	publisher, subscriber = on(t, newDatabase(t, server, `TEMPLATE template0`)), on(t, newDatabase(t, server, `TEMPLATE template0`))
	require.NoError(t, migrations.Up(t.Context(), publisher.pool))
	publisher.exec(t, publishedSQL)
	require.NoError(t, fencing.Guard(t.Context(), publisher.pool, "exports", "nightly"))

	publisher.exec(t, `CREATE ROLE owner`)
	subscriber.exec(t, `GRANT ALL ON SCHEMA public TO owner`)
	subscriber.exec(t, `GRANT CREATE ON DATABASE `+subscriber.db.Name+` TO owner`)
	owner := subscriber.db.Pool(t, with("role", "owner"))
	require.NoError(t, migrations.Up(t.Context(), owner))
	_, err := owner.Exec(t.Context(), publishedSQL)
	require.NoError(t, err)
	require.NoError(t, fencing.Guard(t.Context(), owner, "exports", "nightly"))
	require.NoError(t, fencing.Guard(t.Context(), owner, "parted", "nightly"))
	require.NoError(t, fencing.GuardBy(t.Context(), owner, "orders", "tenant"))
	require.NoError(t, fencing.GuardByPrefix(t.Context(), owner, "parted_by", "tenant", "tenant/"))

	publisher.exec(t, fmt.Sprintf(`CREATE PUBLICATION shop FOR TABLE %s WITH (publish_via_partition_root = %v)`,
		strings.Join(publishedTables, ", "), viaRoot))
	// Of the same server: the command could not make the slot itself.
	publisher.exec(t, `SELECT pg_create_logical_replication_slot('shop', 'pgoutput')`)
	return publisher, subscriber
}

func subscribe(t *testing.T, publisher, subscriber *bundle) {
	t.Helper()
	config, err := pgx.ParseConfig(publisher.db.DSN)
	require.NoError(t, err)
	subscriber.exec(t, fmt.Sprintf(`CREATE SUBSCRIPTION shop CONNECTION 'host=%s port=%d user=%s password=%s dbname=%s sslmode=disable'
		PUBLICATION shop WITH (create_slot = false)`, config.Host, config.Port, config.User, config.Password, config.Database))
	// A database with a subscription, or with a slot, can't be dropped.
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		_, err := subscriber.observer.Exec(ctx, `DROP SUBSCRIPTION shop`)
		require.NoError(t, err)
	})
}

// waitUntilSame waits until the tables of both hold the same.
func waitUntilSame(t *testing.T, publisher, subscriber *bundle) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for _, table := range publishedTables {
		want := publisher.contents(t, table)
		for {
			got := subscriber.contents(t, table)
			if got == want {
				break
			}
			if time.Now().After(deadline) {
				log, _ := publisher.db.Server.Log(t.Context())
				require.Equal(t, want, got, "%s\n%s", table, log[max(0, len(log)-3000):])
			}
			waitAMoment(t.Context())
		}
	}
}

func TestReplication_appliesToGuardedTables(t *testing.T) {
	t.Parallel()
	for _, viaRoot := range []bool{false, true} {
		t.Run(fmt.Sprint("via the root ", viaRoot), func(t *testing.T) {
			t.Parallel()
			publisher, subscriber := replicated(t, viaRoot)
			lease := publisher.lock(t, publisher.fencer, "nightly")
			publish := func(sql string) {
				t.Helper()
				tx, err := publisher.pool.Begin(t.Context())
				require.NoError(t, err)
				defer func() { _ = tx.Rollback(t.Context()) }()
				require.NoError(t, lease.Stamp(t.Context(), tx))
				_, err = tx.Exec(t.Context(), sql)
				require.NoError(t, err)
				require.NoError(t, tx.Commit(t.Context()))
			}
			publish(`INSERT INTO exports VALUES (1, 'before'), (2, 'before');
				INSERT INTO orders VALUES (1, 'a', 'before', 77), (2, 'b', 'before', 78), (3, NULL, 'before', NULL);
				INSERT INTO parted VALUES (1, 'before', 79), (101, 'before', 80);
				INSERT INTO parted_by VALUES (1, 'a', 81), (2, NULL, NULL), (101, 'b', 82)`)
			subscribe(t, publisher, subscriber)
			waitUntilSame(t, publisher, subscriber)
			require.Contains(t, subscriber.contents(t, "exports"), fmt.Sprintf("(1,before,%d)", lease.Token()))

			publish(`INSERT INTO exports SELECT n, 'after' FROM generate_series(3, 9) n;
				INSERT INTO orders SELECT n, 'c', 'after', n FROM generate_series(4, 9) n;
				INSERT INTO orders VALUES (10, NULL, 'after', NULL);
				INSERT INTO parted SELECT n, 'after', n FROM generate_series(50, 150) n WHERE n <> 101;
				INSERT INTO parted_by SELECT n, 'c', n FROM generate_series(50, 150) n WHERE n <> 101`)
			waitUntilSame(t, publisher, subscriber)
			publish(`UPDATE exports SET note = 'changed' WHERE id < 5;
				UPDATE orders SET tenant = coalesce(tenant, '') || 'x' WHERE id < 5;
				UPDATE parted SET id = id + 160, note = 'moved' WHERE id = 1;
				UPDATE parted_by SET tenant = NULL WHERE id > 140`)
			waitUntilSame(t, publisher, subscriber)
			publish(`DELETE FROM exports WHERE id > 7; DELETE FROM orders WHERE id > 7; DELETE FROM parted WHERE id > 99; DELETE FROM parted_by WHERE id < 99`)
			waitUntilSame(t, publisher, subscriber)
			// A later holder of the publisher makes no difference here.
			require.NoError(t, lease.Unlock(t.Context()))
			lease = publisher.lock(t, publisher.fencer, "nightly")
			publish(`UPDATE exports SET note = 'later'`)
			waitUntilSame(t, publisher, subscriber)

			for _, sql := range []string{
				`INSERT INTO exports VALUES (100)`, `UPDATE exports SET note = ''`, `DELETE FROM orders`, `TRUNCATE orders`,
				`INSERT INTO orders VALUES (100)`, `INSERT INTO parted1 VALUES (99)`, `INSERT INTO parted VALUES (199)`,
				`TRUNCATE parted`, `TRUNCATE parted2a`, `DELETE FROM parted_by`, `TRUNCATE parted_by2`, `INSERT INTO parted_by2 VALUES (300, NULL)`,
			} {
				requireUnstamped(t, subscriber, sql)
			}

			publish(`TRUNCATE exports, orders, parted, parted_by`)
			waitUntilSame(t, publisher, subscriber)
			require.Empty(t, subscriber.contents(t, "exports"))
			requireProblems(t, subscriber)
			require.Zero(t, one[int](t, subscriber.observer, `SELECT count(*) FROM fencing.resource`))

			// A holder of the subscriber does not disturb it, and is not disturbed.
			held := subscriber.lock(t, subscriber.fencer, "nightly")
			require.NoError(t, held.InTx(t.Context(), subscriber.pool, func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), `INSERT INTO exports VALUES (1000, 'local')`)
				return err
			}))
			publish(`INSERT INTO exports VALUES (1, 'last')`)
			subscriber.waitFor(t, "the row is there", `SELECT EXISTS (SELECT FROM exports WHERE id = 1)`)
		})
	}
}
