package advisory

import (
	"errors"
	"fmt"
	"strconv"
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

func rowsFor(targets []target, unlock bool) []row {
	rows := make([]row, len(targets))
	for i, t := range targets {
		rows[i] = row{target: t, unlock: unlock}
	}
	return rows
}

func rowsOf(batch []*operation) []row {
	rows := make([]row, 0, len(batch)) // more, if some have several
	for _, op := range batch {
		for _, t := range op.lock.locks {
			rows = append(rows, row{target: t, unlock: op.unlocks})
		}
	}
	return rows
}

// kind is what a row asks for, as a number.
func (r row) kind() byte {
	kind := byte(0)
	for bit, is := range []bool{r.shared, r.isPair(), r.unlock} {
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

// isNot is the letter that answers a row with false.
const isNot = "f"

// eachRow selects a letter for each row, in order. A function scan gives the rows
// in the order of its arrays, an aggregate takes them in the order in which they
// come, and the condition is computed once for each.
func eachRow(condition string) string {
	return "SELECT pg_catalog.string_agg(CASE WHEN " + condition + " THEN 't' ELSE '" + isNot + "' END, '') FROM " + rowsFrom
}

// doRow does what a row says.
var doRow = fmt.Sprintf(`CASE WHEN kind OPERATOR(pg_catalog.=) 0 THEN pg_catalog.pg_try_advisory_lock(id)
	WHEN kind OPERATOR(pg_catalog.=) 4 THEN pg_catalog.pg_advisory_unlock(id)
	WHEN kind OPERATOR(pg_catalog.=) 1 THEN pg_catalog.pg_try_advisory_lock_shared(id)
	WHEN kind OPERATOR(pg_catalog.=) 5 THEN pg_catalog.pg_advisory_unlock_shared(id)
	WHEN kind OPERATOR(pg_catalog.=) 2 THEN pg_catalog.pg_try_advisory_lock(%[1]s, %[2]s)
	WHEN kind OPERATOR(pg_catalog.=) 6 THEN pg_catalog.pg_advisory_unlock(%[1]s, %[2]s)
	WHEN kind OPERATOR(pg_catalog.=) 3 THEN pg_catalog.pg_try_advisory_lock_shared(%[1]s, %[2]s)
	WHEN kind OPERATOR(pg_catalog.=) 7 THEN pg_catalog.pg_advisory_unlock_shared(%[1]s, %[2]s) END`, classOfID, objectOfID)

// workSQL does what each row says, one after the other.
var workSQL = eachRow(doRow)

// rowsDone does so too, up to the first row whose answer is false, and is true if there
// is none.
var rowsDone = "NOT EXISTS (SELECT FROM (SELECT " + doRow + " AS done FROM " + rowsFrom + " OFFSET 0) AS rows WHERE done IS NOT TRUE)"

// heldSQL tells of each row whether this session holds its lock.
var heldSQL = eachRow(`EXISTS (SELECT FROM pg_catalog.pg_locks l
	WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.pid OPERATOR(pg_catalog.=) pg_catalog.pg_backend_pid() AND l.granted
	AND l.objsubid OPERATOR(pg_catalog.=) CASE WHEN (kind OPERATOR(pg_catalog.&) 2) OPERATOR(pg_catalog.<>) 0 THEN 2 ELSE 1 END
	AND l.classid OPERATOR(pg_catalog.=) ((id OPERATOR(pg_catalog.>>) 32) OPERATOR(pg_catalog.&) 4294967295)::pg_catalog.oid
	AND l.objid OPERATOR(pg_catalog.=) (id OPERATOR(pg_catalog.&) 4294967295)::pg_catalog.oid
	AND l.mode OPERATOR(pg_catalog.=) CASE WHEN (kind OPERATOR(pg_catalog.&) 1) OPERATOR(pg_catalog.<>) 0 THEN 'ShareLock' ELSE 'ExclusiveLock' END)`)

// parametersOf are the two arrays of rowsFrom, in text.
func parametersOf(rows []row) (kinds, ids []byte) {
	kinds, ids = make([]byte, 0, 2*len(rows)+2), make([]byte, 0, 20*len(rows)+2)
	before := byte('{')
	for _, r := range rows {
		kinds = append(kinds, before, '0'+r.kind())
		ids = strconv.AppendInt(append(ids, before), r.id, 10)
		before = ','
	}
	if len(rows) == 0 {
		return []byte("{}"), []byte("{}")
	}
	return append(kinds, '}'), append(ids, '}')
}
