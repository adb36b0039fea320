package advisory

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pgadvisory/pgadvisory/internal/grant"
)

// Every statement runs on the one connection that holds, or is to hold, the
// lock. Functions are named with their schema, because a role's search_path may
// put others of the same name before them. Order inside a statement is forced
// with CASE, the one construct for which PostgreSQL promises it (manual,
// section 4.2.14); neither a target list nor AND promises any.

// cleared releases whatever a session holds, without a warning for what it does
// not hold, and is true.
const cleared = "pg_catalog.pg_advisory_unlock_all()::pg_catalog.text OPERATOR(pg_catalog.=) ''"

// lookForClient has the server look for its client until the end of a transaction
// that was just begun, by a text that may end with a comment.
func lookForClient(millis int64) string {
	return fmt.Sprintf("\n; SET LOCAL client_connection_check_interval = %d", millis)
}

// clearSQL releases what a session holds and puts its settings back, and the
// application_name.
func clearSQL(w *way, application string) string {
	return fmt.Sprintf("SELECT CASE WHEN %s THEN %s END", cleared, w.restore(hexText(application)))
}

// slice is how long one wait on the server lasts. It must stay well below
// deadlock_timeout, whose default is 1 s; where that is set lower, half of it
// is taken.
const slice = 300 * time.Millisecond

// script is what one round trip of asking consists of where a single statement
// does not do: waiting, or an Issue. It is run by the simple protocol.
type script struct {
	targets []target
	held    int           // how many of them the session holds already, in order
	applied bool          // the settings are applied already
	wait    time.Duration // 0 is not at all
	issue   grant.Issue
	name    string // application_name
	way     *way
}

// heldChanged is how many locks a script says are held when it has done nothing,
// because the settings are not as they were.
const heldChanged = -1

// beginScript begins a transaction of the script's own, in read committed: an
// older snapshot must not fail what an Issue writes, whatever the role's default
// is. Until its end statement_timeout, and transaction_timeout where there is
// one, are out of force: a role's settings are meant for its queries and not for
// a wait for a lock. So is exit_on_error, which would end the session with each
// wait in vain, although that is caught.
func beginScript(majorVersion int) string {
	text := "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL statement_timeout = 0; SET LOCAL search_path = pg_catalog, pg_temp; " +
		"SET LOCAL exit_on_error = off; "
	if majorVersion >= 17 {
		text += "SET LOCAL transaction_timeout = 0; "
	}
	return text
}

// String is the text. It selects how many locks are held and, when these are
// all, the receipt. The text of the block is the same for all locks, and their numbers are
// constants of a SELECT, for the sake of pg_stat_statements.
//
// Somebody waits for what comes after the wait, so all that can be is done before:
// the settings are applied and the session has its name.
func (s script) String() string {
	receipt := "1::bigint"
	if !s.issue.IsZero() {
		receipt = fmt.Sprintf("CASE WHEN current_setting('pgadvisory.held') = '%d' THEN %s END", len(s.targets), s.issue.SQL())
	}
	held := fmt.Sprintf("'%d'", s.held)
	if !s.applied {
		held = fmt.Sprintf("CASE WHEN %s THEN CASE WHEN %s AND %s THEN %s END ELSE '%d' END",
			s.way.areAsBefore(), setName(hexText(s.name)), s.way.apply(), held, heldChanged)
	}
	return beginScript(s.way.major) +
		fmt.Sprintf("SELECT set_config('pgadvisory.pairs', '%s', true), set_config('pgadvisory.shared', '%s', true), set_config('pgadvisory.ids', '%s', true), "+
			"set_config('pgadvisory.held', %s, true), set_config('pgadvisory.wait', '%d', true); ",
			array(s.targets, func(t target) string { return strconv.FormatBool(t.isPair()) }),
			array(s.targets, func(t target) string { return strconv.FormatBool(t.shared) }),
			array(s.targets, func(t target) string { return strconv.FormatInt(t.id, 10) }),
			held, s.wait.Milliseconds()) +
		scriptBlock +
		"; SELECT current_setting('pgadvisory.held'), " + receipt + "; COMMIT"
}

// hexText is a text of ASCII in SQL, spelled so that no setting of the session
// decides how it is read, and that no conversion between encodings is needed.
func hexText(s string) string {
	return fmt.Sprintf("pg_catalog.convert_from(pg_catalog.decode('%s', 'hex'), 'SQL_ASCII')", hex.EncodeToString([]byte(s)))
}

func array(targets []target, element func(target) string) string {
	elements := make([]string, len(targets))
	for i, t := range targets {
		elements[i] = element(t)
	}
	return "{" + strings.Join(elements, ",") + "}"
}

// scriptBlock takes the locks in order. What a waiting session holds back, it
// holds back until the wait is over, and that is before a deadlock could be
// declared: neither VACUUM nor CREATE INDEX CONCURRENTLY waits longer. That a
// wait ends in vain is caught here, or the server would log an error for each.
//
// A wait that ends by its timeout can have got the lock in the same instant.
// Where nothing else is held, unlock_all makes sure of the opposite; else
// pg_locks tells.
//
// PL/pgSQL plans an expression when it is first reached. After a wait that gets the
// last lock there is none that was not reached before it; the setting is in place
// by then, and goes with the subtransaction if the wait is in vain.
const scriptBlock = `DO $pgadvisory$
DECLARE
	pairs    boolean[] := current_setting('pgadvisory.pairs');
	shared   boolean[] := current_setting('pgadvisory.shared');
	ids      bigint[]  := current_setting('pgadvisory.ids');
	held     int       := current_setting('pgadvisory.held');
	wait     int       := current_setting('pgadvisory.wait');
	deadline timestamptz;
	id       bigint;
BEGIN
	wait := least(wait, ceil(extract(epoch FROM current_setting('deadlock_timeout')::interval) * 500));
	deadline := clock_timestamp() + wait * interval '1 millisecond';
	IF held = 0 THEN
		PERFORM pg_advisory_unlock_all(); -- what the session came with
	END IF;
	WHILE held >= 0 AND held < cardinality(ids) LOOP
		id := ids[held + 1];
		IF (CASE
			WHEN pairs[held + 1] AND shared[held + 1] THEN pg_try_advisory_lock_shared((id >> 32)::int, ((id << 32) >> 32)::int)
			WHEN pairs[held + 1] THEN pg_try_advisory_lock((id >> 32)::int, ((id << 32) >> 32)::int)
			WHEN shared[held + 1] THEN pg_try_advisory_lock_shared(id)
			ELSE pg_try_advisory_lock(id) END)
		THEN
			held := held + 1;
			PERFORM set_config('pgadvisory.held', held::text, true);
			CONTINUE;
		END IF;
		IF wait = 0 THEN
			PERFORM pg_advisory_unlock_all();
			PERFORM set_config('pgadvisory.held', '0', true);
			EXIT;
		END IF;
		BEGIN
			PERFORM set_config('lock_timeout', greatest(1, ceil(extract(epoch FROM deadline - clock_timestamp()) * 1000))::int::text, true),
				set_config('pgadvisory.held', (held + 1)::text, true);
			held := held + CASE WHEN CASE
				WHEN pairs[held + 1] AND shared[held + 1] THEN pg_advisory_lock_shared((id >> 32)::int, ((id << 32) >> 32)::int)
				WHEN pairs[held + 1] THEN pg_advisory_lock((id >> 32)::int, ((id << 32) >> 32)::int)
				WHEN shared[held + 1] THEN pg_advisory_lock_shared(id)
				ELSE pg_advisory_lock(id) END::text = '' THEN 1 END;
		EXCEPTION
			WHEN deadlock_detected THEN
				PERFORM pg_advisory_unlock_all();
				PERFORM set_config('pgadvisory.held', '0', true);
				EXIT;
			WHEN lock_not_available THEN
				IF held = 0 THEN
					PERFORM pg_advisory_unlock_all();
					EXIT;
				END IF;
				EXIT WHEN NOT EXISTS (SELECT FROM pg_locks l
					WHERE l.locktype = 'advisory' AND l.pid = pg_backend_pid() AND l.granted
					AND l.objsubid = CASE WHEN pairs[held + 1] THEN 2 ELSE 1 END
					AND l.classid = ((id >> 32) & 4294967295)::oid AND l.objid = (id & 4294967295)::oid
					AND l.mode = CASE WHEN shared[held + 1] THEN 'ShareLock' ELSE 'ExclusiveLock' END);
				held := held + 1;
				PERFORM set_config('pgadvisory.held', held::text, true);
		END;
	END LOOP;
END $pgadvisory$`
