package advisory

import (
	"errors"
	"fmt"
)

var (
	errHeldElsewhere = fmt.Errorf("%w: another session holds the lock, or one of them", ErrNotAcquired)
	errWrongAnswer   = errors.New("the server answered another number of rows than it was asked")
)

// row is one lock in a Session's round trip.
type row struct {
	target
	unlock bool
}

func rowsOf(batch []*operation) []row {
	var rows []row
	for _, op := range batch {
		for _, t := range op.targets {
			rows = append(rows, row{target: t, unlock: op.unlocks})
		}
	}
	return rows
}

// rowsFrom are the rows in SQL, in their order.
const rowsFrom = `ROWS FROM (pg_catalog.unnest($1::boolean[]), pg_catalog.unnest($2::boolean[]), pg_catalog.unnest($3::boolean[]),
	pg_catalog.unnest($4::int[]), pg_catalog.unnest($5::int[]), pg_catalog.unnest($6::bigint[])) AS t (unlock, pair, shared, class, object, id)`

// batchSQL does what each row says, one after the other: a function scan gives
// them in order, and each is computed once, in the target list.
const batchSQL = `SELECT CASE
	WHEN unlock AND pair AND shared THEN pg_catalog.pg_advisory_unlock_shared(class, object)
	WHEN unlock AND pair THEN pg_catalog.pg_advisory_unlock(class, object)
	WHEN unlock AND shared THEN pg_catalog.pg_advisory_unlock_shared(id)
	WHEN unlock THEN pg_catalog.pg_advisory_unlock(id)
	WHEN pair AND shared THEN pg_catalog.pg_try_advisory_lock_shared(class, object)
	WHEN pair THEN pg_catalog.pg_try_advisory_lock(class, object)
	WHEN shared THEN pg_catalog.pg_try_advisory_lock_shared(id)
	ELSE pg_catalog.pg_try_advisory_lock(id) END
FROM ` + rowsFrom

// heldSQL tells of each row whether this session holds its lock.
const heldSQL = `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l
	WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND l.granted
	AND l.objsubid OPERATOR(pg_catalog.=) CASE WHEN pair THEN 2 ELSE 1 END
	AND l.classid OPERATOR(pg_catalog.=) ((id OPERATOR(pg_catalog.>>) 32) OPERATOR(pg_catalog.&) 4294967295)::pg_catalog.oid
	AND l.objid OPERATOR(pg_catalog.=) (id OPERATOR(pg_catalog.&) 4294967295)::pg_catalog.oid
	AND l.mode OPERATOR(pg_catalog.=) CASE WHEN shared THEN 'ShareLock' ELSE 'ExclusiveLock' END)
FROM ` + rowsFrom

func argsOf(rows []row) []any {
	n := len(rows)
	unlock, pairs, shared := make([]bool, n), make([]bool, n), make([]bool, n)
	classes, objects, ids := make([]int32, n), make([]int32, n), make([]int64, n)
	for i, r := range rows {
		unlock[i], pairs[i], shared[i] = r.unlock, r.pair, r.shared
		classes[i], objects[i], ids[i] = r.class(), r.object(), r.id
	}
	return []any{unlock, pairs, shared, classes, objects, ids}
}
