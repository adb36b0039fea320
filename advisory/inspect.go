package advisory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// Querier is what [Inspect] needs of a database: a *pgxpool.Pool, a *pgx.Conn
// or a pgx.Tx.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Inspect returns who holds the locks of keys and who waits for them, or with no
// keys, those of all advisory locks of the database that db is connected to. A
// session that holds a lock in both modes, or holds it and waits, is there
// twice. The order is by lock, as in [Locker.LockAll];
// for each lock the holders come first, by PID, and then the waiters in the
// order in which they began to wait, as far as that is known. Of the sessions that
// [Locker.Lock] keeps waiting for one lock, four at most are there: the others don't
// wait on the server. Their application_name says what they wait for.
//
// It is one query, which takes no lock and needs no privilege; see [Status] for
// what it shows to whom. The server does not stop for it: what it tells of
// locks and what it tells of sessions can be a moment apart.
//
// ctx bounds the call. An invalid key is refused without a query, with an error
// that matches [ErrInvalidKey].
func Inspect(ctx context.Context, db Querier, keys ...Key) ([]Status, error) {
	switch {
	case ctx == nil:
		return nil, fmt.Errorf("advisory: inspect: %w", errNilContext)
	case db == nil:
		return nil, errors.New("advisory: inspect: the database is nil")
	}
	known := make(map[lockid.ID]Key, len(keys))
	ids, pairs := []int64{}, []int64{}
	for _, key := range keys {
		if err := key.validate(); err != nil {
			return nil, wrap("inspect", []Key{key}, err)
		}
		t := key.lockID()
		if _, ok := known[t]; ok {
			continue // the first one names it
		}
		known[t] = key
		if t.IsPair() {
			pairs = append(pairs, t.Number)
		} else {
			ids = append(ids, t.Number)
		}
	}
	rows, err := db.Query(ctx, inspectSQL, len(keys) == 0, ids, pairs, []uint32{seatClass, placeClass})
	if err != nil {
		return nil, fmt.Errorf("advisory: inspect: %w", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Status, error) { return scanStatus(row, known) })
	if err != nil {
		return nil, fmt.Errorf("advisory: inspect: %w", err)
	}
	slices.SortFunc(all, compareStatus)
	return all, nil
}

// The classes of the locks that belong to waits, as pg_locks has them. These are not shown.
var (
	seatClass  = uint32(lockid.OfPair(lockid.SeatClass, 0).Number >> 32)
	placeClass = uint32(lockid.OfPair(lockid.PlaceClass, 0).Number >> 32)
)

// inspectSQL shows a lock's number as in [Key]: the class, or high half, and the
// object, or low half, which are unsigned in pg_locks. A row of pg_locks has a
// waitstart only since PostgreSQL 14; JSON gives NULL where there is no such
// column. What ties a prepared transaction to its locks is the lock on its own
// id, in the same look at pg_locks: its virtual transaction is that of the session
// it came from, until a restart of the server. Operators are named with their
// schema like functions.
const inspectSQL = `
WITH snapshot AS MATERIALIZED (SELECT * FROM pg_catalog.pg_locks),
locks AS (
	SELECT l.*,
		l.classid::bigint OPERATOR(pg_catalog.<<) 32 OPERATOR(pg_catalog.|) l.objid::bigint AS id,
		pg_catalog.to_jsonb(l) OPERATOR(pg_catalog.->>) 'waitstart' AS wait_start
	FROM snapshot l
	WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory'
	AND l.database OPERATOR(pg_catalog.=) (SELECT d.oid FROM pg_catalog.pg_database d
		WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database())
),
prepared AS (
	SELECT x.virtualtransaction, p.gid, p.owner, p.prepared
	FROM snapshot x JOIN pg_catalog.pg_prepared_xacts p ON p.transaction OPERATOR(pg_catalog.=) x.transactionid
	WHERE x.pid IS NULL
)
SELECT l.objsubid::int, l.id, l.mode::pg_catalog.text, l.granted, l.pid::int,
	CASE WHEN NOT l.granted THEN pg_catalog.pg_blocking_pids(l.pid) END,
	p.gid::pg_catalog.text, coalesce(a.usename, p.owner)::pg_catalog.text, a.application_name::pg_catalog.text, pg_catalog.host(a.client_addr),
	a.backend_start, l.wait_start::pg_catalog.timestamptz, a.state::pg_catalog.text, coalesce(a.state_change, p.prepared), a.query_start,
	pg_catalog.clock_timestamp()
FROM locks l
LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid OPERATOR(pg_catalog.=) l.pid
LEFT JOIN prepared p ON l.pid IS NULL AND p.virtualtransaction OPERATOR(pg_catalog.=) l.virtualtransaction
WHERE $1::boolean AND NOT (l.objsubid OPERATOR(pg_catalog.=) 2 AND l.classid OPERATOR(pg_catalog.=) ANY ($4::pg_catalog.oid[]))
	OR l.objsubid OPERATOR(pg_catalog.=) 1 AND l.id OPERATOR(pg_catalog.=) ANY ($2::bigint[])
	OR l.objsubid OPERATOR(pg_catalog.=) 2 AND l.id OPERATOR(pg_catalog.=) ANY ($3::bigint[])`
