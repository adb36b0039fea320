package advisory

import (
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/grant"
)

// Every statement runs on the one connection that holds, or is to hold, the
// lock. Functions are named with their schema, because a role's search_path may
// put others of the same name before them. Order inside a statement is forced
// with CASE, the one construct for which PostgreSQL promises it (manual,
// section 4.2.14); neither a target list nor AND promises any.

// clearSQL releases whatever a session holds, without a warning for what it
// does not hold.
const clearSQL = "SELECT pg_catalog.pg_advisory_unlock_all()"

// cleared is true, after the fact.
const cleared = "pg_catalog.pg_advisory_unlock_all()::pg_catalog.text OPERATOR(pg_catalog.=) ''"

// trySQL clears what other code may have left on a connection of the pool,
// because a lock that the session already holds would be granted once more, and
// then tries the lock.
func trySQL(t tag) string {
	return fmt.Sprintf("SELECT CASE WHEN %s THEN pg_catalog.pg_try_advisory_lock(%s) END", cleared, t.placeholders())
}

// unlockSQL is true when the session held the lock until now and holds nothing
// any more.
func unlockSQL(t tag) string {
	return fmt.Sprintf("SELECT CASE WHEN pg_catalog.pg_advisory_unlock(%s) THEN %s ELSE false END", t.placeholders(), cleared)
}

// A script is several statements in one round trip. It runs in a transaction of
// its own, in read committed: an older snapshot must not fail what an Issue
// writes, whatever the role's default is. Until its end statement_timeout, and
// transaction_timeout where there is one, are out of force: a role's settings
// are meant for its queries and not for a wait for a lock. It selects one
// bigint: NULL when the lock is not granted, else the receipt.

func begin(majorVersion int) string {
	script := "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0; "
	if majorVersion >= 17 {
		script += "SET LOCAL transaction_timeout = 0; "
	}
	return script
}

const commit = "; COMMIT"

// tryScript is trySQL with an Issue.
func tryScript(t tag, issue grant.Issue, majorVersion int) string {
	return begin(majorVersion) + fmt.Sprintf("SELECT CASE WHEN %s THEN CASE WHEN pg_catalog.pg_try_advisory_lock(%s) THEN %s END END",
		cleared, t.literals(), issue.SQL()) + commit
}

// issueScript makes the receipt on a session that has the lock.
func issueScript(issue grant.Issue, majorVersion int) string {
	return begin(majorVersion) + "SELECT " + issue.SQL() + commit
}

// slice is how long one wait on the server lasts. It must stay well below
// deadlock_timeout, whose default is 1 s; where that is set lower, half of it
// is taken.
const slice = 300 * time.Millisecond

// sliceScript waits for the lock for one slice. The wait is over before it can
// take part in a deadlock, and the transaction with it, so that it holds back
// neither VACUUM nor CREATE INDEX CONCURRENTLY for longer. That a slice ends
// without the lock is caught in the block, or the server would log an error for
// each. The text of the block is the same for all locks, and their numbers are
// constants of a SELECT, for the sake of pg_stat_statements.
func sliceScript(t tag, issue grant.Issue, majorVersion int) string {
	receipt := "1::bigint"
	if !issue.IsZero() {
		receipt = issue.SQL()
	}
	return begin(majorVersion) + "SET LOCAL search_path = pg_catalog, pg_temp; " +
		fmt.Sprintf("SELECT set_config('pgadvisory.class', '%d', true), set_config('pgadvisory.key', '%d', true), set_config('pgadvisory.slice', '%d', true); ",
			t.class(), t.key(), slice.Milliseconds()) +
		t.sliceBlock() +
		fmt.Sprintf("; SELECT CASE WHEN current_setting('pgadvisory.granted') = 'yes' THEN %s END", receipt) + commit
}

var (
	sliceBlock     = fmt.Sprintf(sliceBlockFormat, "current_setting('pgadvisory.key')::bigint")
	sliceBlockPair = fmt.Sprintf(sliceBlockFormat, "current_setting('pgadvisory.class')::int, current_setting('pgadvisory.key')::int")
)

// sliceBlockFormat waits. A wait that ends by its timeout can have got the lock
// in the same instant; unlock_all gives it back then.
const sliceBlockFormat = `DO $pgadvisory$
BEGIN
	PERFORM set_config('lock_timeout', least(current_setting('pgadvisory.slice')::int,
		ceil(extract(epoch FROM current_setting('deadlock_timeout')::interval) * 500)::int)::text, true);
	PERFORM pg_advisory_lock(%s);
	PERFORM set_config('pgadvisory.granted', 'yes', true);
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
	PERFORM pg_advisory_unlock_all();
	PERFORM set_config('pgadvisory.granted', 'no', true);
END $pgadvisory$`

func (t tag) placeholders() string {
	if t.pair {
		return "$1::int, $2::int"
	}
	return "$1::bigint"
}

func (t tag) args() []any {
	if t.pair {
		return []any{t.class(), t.object()}
	}
	return []any{t.id}
}

func (t tag) literals() string {
	if t.pair {
		return fmt.Sprintf("'%d'::int, '%d'::int", t.class(), t.object())
	}
	return fmt.Sprintf("'%d'::bigint", t.id)
}

func (t tag) sliceBlock() string {
	if t.pair {
		return sliceBlockPair
	}
	return sliceBlock
}

// key is the last argument of the lock functions.
func (t tag) key() int64 {
	if t.pair {
		return int64(t.object())
	}
	return t.id
}
