package advisory

import (
	"fmt"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/grant"
)

// Every statement runs on the one connection that holds, or is to hold, the
// lock. Order inside a statement is forced with CASE, the one construct for
// which PostgreSQL promises it (manual, section 4.2.14); neither a target list
// nor AND promises any.

// trySQL clears what other code may have left on a connection of the pool,
// because a lock that the session already holds would be granted once more,
// then tries the lock, then makes the receipt. NULL means not granted.
func trySQL(t tag, issue grant.Issue) string {
	return fmt.Sprintf("SELECT CASE WHEN pg_advisory_unlock_all()::text = '' THEN"+
		" CASE WHEN pg_try_advisory_lock(%s) THEN %s END END", t.params(), issue.Call(t.next()))
}

// issueSQL makes the receipt on a session that has the lock.
func issueSQL(issue grant.Issue) string { return "SELECT " + issue.Call("$1") }

// unlockSQL is true when the session held the lock until now and holds nothing
// any more.
func unlockSQL(t tag) string {
	return fmt.Sprintf("SELECT CASE WHEN pg_advisory_unlock(%s)"+
		" THEN pg_advisory_unlock_all()::text = '' ELSE false END", t.params())
}

// clearSQL releases whatever a session holds, without a warning for what it
// does not hold.
const clearSQL = "SELECT pg_advisory_unlock_all()"

// slice is how long one wait on the server lasts. It must stay well below
// deadlock_timeout, whose default is 1 s; where that is set lower, half of it
// is taken.
const slice = 300 * time.Millisecond

// sliceSQL waits for the lock for one slice. The wait is over before it can
// take part in a deadlock, and the transaction with it, so that it holds back
// neither VACUUM nor CREATE INDEX CONCURRENTLY for longer. That a slice ends
// without the lock is caught in the block, or the server would log an error
// for each.
//
// An ended wait can have got the lock in the same instant; unlock_all gives it
// back then. Before the block's end statement_timeout, and transaction_timeout
// where there is one, are out of force, because a role's settings are meant for
// its queries and not for this wait.
func sliceSQL(t tag, issue grant.Issue, majorVersion int) string {
	noTransactionTimeout := ""
	if majorVersion >= 17 {
		noTransactionTimeout = "SET LOCAL transaction_timeout = 0;"
	}
	return fmt.Sprintf(`BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL statement_timeout = 0; %s
DO $pgadvisory$
BEGIN
	PERFORM set_config('lock_timeout', least(%d,
		ceil(extract(epoch FROM current_setting('deadlock_timeout')::interval) * 500))::int::text, true);
	PERFORM pg_advisory_lock(%s);
	PERFORM set_config('pgadvisory.granted', 'yes', true);
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
	PERFORM pg_advisory_unlock_all();
	PERFORM set_config('pgadvisory.granted', 'no', true);
END $pgadvisory$;
SELECT CASE WHEN current_setting('pgadvisory.granted') = 'yes' THEN %s END;
COMMIT`, noTransactionTimeout, slice.Milliseconds(), t.literal(), issue.Literal())
}

func (t tag) params() string {
	if t.pair {
		return "$1::int4, $2::int4"
	}
	return "$1::bigint"
}

func (t tag) args() []any {
	if t.pair {
		return []any{int32(t.id >> 32), int32(t.id)}
	}
	return []any{t.id}
}

// next is the first placeholder after those of params.
func (t tag) next() string { return fmt.Sprintf("$%d", len(t.args())+1) }

func (t tag) literal() string {
	if t.pair {
		return fmt.Sprintf("'%d'::int4, '%d'::int4", int32(t.id>>32), int32(t.id))
	}
	return fmt.Sprintf("'%d'::bigint", t.id)
}
