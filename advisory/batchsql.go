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

// kind is what a row asks for, as a number.
func (r row) kind() int32 {
	kind := int32(0)
	for bit, is := range []bool{r.shared, r.pair, r.unlock} {
		if is {
			kind |= 1 << bit
		}
	}
	return kind
}

// rowsFrom are the rows in SQL, in their order. The id of a pair has its first
// number in the high half, and the second one in the low half.
const rowsFrom = `ROWS FROM (pg_catalog.unnest($1::int[]), pg_catalog.unnest($2::bigint[])) AS t (kind, id)`

const (
	classOfID  = `(id OPERATOR(pg_catalog.>>) 32)::int`
	objectOfID = `((id OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.>>) 32)::int`
)

// batchSQL does what each row says, one after the other: a function scan gives
// them in order, and each is computed once, in the target list.
var batchSQL = fmt.Sprintf(`SELECT CASE
	WHEN kind OPERATOR(pg_catalog.=) 0 THEN pg_catalog.pg_try_advisory_lock(id)
	WHEN kind OPERATOR(pg_catalog.=) 4 THEN pg_catalog.pg_advisory_unlock(id)
	WHEN kind OPERATOR(pg_catalog.=) 1 THEN pg_catalog.pg_try_advisory_lock_shared(id)
	WHEN kind OPERATOR(pg_catalog.=) 5 THEN pg_catalog.pg_advisory_unlock_shared(id)
	WHEN kind OPERATOR(pg_catalog.=) 2 THEN pg_catalog.pg_try_advisory_lock(%[1]s, %[2]s)
	WHEN kind OPERATOR(pg_catalog.=) 6 THEN pg_catalog.pg_advisory_unlock(%[1]s, %[2]s)
	WHEN kind OPERATOR(pg_catalog.=) 3 THEN pg_catalog.pg_try_advisory_lock_shared(%[1]s, %[2]s)
	WHEN kind OPERATOR(pg_catalog.=) 7 THEN pg_catalog.pg_advisory_unlock_shared(%[1]s, %[2]s) END
`, classOfID, objectOfID) + "FROM " + rowsFrom

// heldSQL tells of each row whether this session holds its lock.
const heldSQL = `SELECT EXISTS (SELECT FROM pg_catalog.pg_locks l
	WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND l.granted
	AND l.objsubid OPERATOR(pg_catalog.=) CASE WHEN (kind OPERATOR(pg_catalog.&) 2) OPERATOR(pg_catalog.<>) 0 THEN 2 ELSE 1 END
	AND l.classid OPERATOR(pg_catalog.=) ((id OPERATOR(pg_catalog.>>) 32) OPERATOR(pg_catalog.&) 4294967295)::pg_catalog.oid
	AND l.objid OPERATOR(pg_catalog.=) (id OPERATOR(pg_catalog.&) 4294967295)::pg_catalog.oid
	AND l.mode OPERATOR(pg_catalog.=) CASE WHEN (kind OPERATOR(pg_catalog.&) 1) OPERATOR(pg_catalog.<>) 0 THEN 'ShareLock' ELSE 'ExclusiveLock' END)
FROM ` + rowsFrom

func argsOf(rows []row) []any {
	kinds, ids := make([]int32, len(rows)), make([]int64, len(rows))
	for i, r := range rows {
		kinds[i], ids[i] = r.kind(), r.id
	}
	return []any{kinds, ids}
}
