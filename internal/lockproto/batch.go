package lockproto

import (
	"context"
	"fmt"
	"strconv"

	"github.com/pgadvisory/pgadvisory/internal/connhold"
	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// Row is one lock in a batch: to be taken, or to be freed.
type Row struct {
	lockid.Target
	Release bool
}

// RowsFor are the rows of targets.
func RowsFor(targets []lockid.Target, release bool) []Row {
	rows := make([]Row, len(targets))
	for i, t := range targets {
		rows[i] = Row{Target: t, Release: release}
	}
	return rows
}

// Results has a letter for each row of a batch.
type Results string

// OK reports whether row i was granted, freed or is held.
func (r Results) OK(i int) bool { return r[i:i+1] != answerFalse }

// AllOK reports whether n rows from row i on were.
func (r Results) AllOK(i, n int) bool {
	for ; n > 0; i, n = i+1, n-1 {
		if !r.OK(i) {
			return false
		}
	}
	return true
}

// Batches are the statements of a session that takes and frees many locks.
type Batches struct {
	hold            *connhold.Hold
	config          *Config
	run, undo, held *connhold.Statement
}

// Batches returns the statements of a session that holds many locks.
func (s *Session) Batches() *Batches {
	return &Batches{
		hold: s.hold, config: s.config,
		run:  s.hold.NewStatement("pgadvisory_session", batchSQL),
		undo: s.hold.NewStatement("pgadvisory_session_undo", batchSQL).Untraced(),
		held: s.hold.NewStatement("pgadvisory_session_held", heldSQL).Untraced(),
	}
}

// Run takes and frees the locks of rows, one after the other. A row that is refused does
// not stop the others.
func (b *Batches) Run(rows []Row) (Results, error) { return b.roundTrip(b.run, rows) }

// Undo is Run for what makes up for an earlier Run. The tracer does not see it.
func (b *Batches) Undo(rows []Row) error {
	_, err := b.roundTrip(b.undo, rows)
	return err
}

// Held tells of each row whether the session holds its lock.
func (b *Batches) Held(rows []Row) (Results, error) { return b.roundTrip(b.held, rows) }

func (b *Batches) roundTrip(statement *connhold.Statement, rows []Row) (Results, error) {
	kinds, ids := arraysOf(rows)
	answers, err := b.hold.RoundTrip(context.Background(), b.config.AnswerTimeout, statement, kinds, ids)
	if err == nil && len(answers) != len(rows) {
		b.hold.MarkDirty()
		err = wrongAnswer("the server answered another number of rows than it was asked")
	}
	return Results(answers), err
}

// kind is what a row asks for, as a number.
func (r Row) kind() byte {
	kind := byte(0)
	for bit, is := range []bool{r.Shared, r.IsPair(), r.Release} {
		if is {
			kind |= 1 << bit
		}
	}
	return kind
}

// rowsFrom are the rows in SQL, in their order. The id of a pair has its class in the
// high half, and its object in the low one.
const rowsFrom = `ROWS FROM (pg_catalog.unnest($1::int[]), pg_catalog.unnest($2::bigint[])) AS t (kind, id)`

const (
	classOfID  = `(id OPERATOR(pg_catalog.>>) 32)::int`
	objectOfID = `((id OPERATOR(pg_catalog.<<) 32) OPERATOR(pg_catalog.>>) 32)::int`
)

// eachRow selects a letter for each row, in order. A function scan gives the rows in the
// order of its arrays, an aggregate takes them in the order in which they come, and the
// condition is computed once for each.
func eachRow(condition string) string {
	return "SELECT pg_catalog.string_agg(CASE WHEN " + condition + " THEN '" + answerTrue + "' ELSE '" + answerFalse + "' END, '') FROM " + rowsFrom
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

// batchSQL does what each row says, one after the other.
var batchSQL = eachRow(doRow)

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

// arraysOf are the two arrays of rowsFrom, in text.
func arraysOf(rows []Row) (kinds, ids []byte) {
	if len(rows) == 0 {
		return []byte("{}"), []byte("{}")
	}
	kinds, ids = make([]byte, 0, 2*len(rows)+2), make([]byte, 0, 20*len(rows)+2)
	before := byte('{')
	for _, r := range rows {
		kinds = append(kinds, before, '0'+r.kind())
		ids = strconv.AppendInt(append(ids, before), r.Number, 10)
		before = ','
	}
	return append(kinds, '}'), append(ids, '}')
}
