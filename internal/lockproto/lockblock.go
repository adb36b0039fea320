package lockproto

import (
	"strconv"
	"strings"

	"github.com/pgadvisory/pgadvisory/internal/lockid"
)

// lockBlock takes the locks in order. What a waiting session holds back, it
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
//
// Who waits for a single lock in the exclusive mode takes a seat first, and waits only if
// one is free. It gives the seat back in the expression that gets the lock, or with
// unlock_all.
var lockBlock = strings.ReplaceAll(`DO $pgadvisory$
DECLARE
	pairs    boolean[] := current_setting('pgadvisory.pairs');
	shared   boolean[] := current_setting('pgadvisory.shared');
	ids      bigint[]  := current_setting('pgadvisory.ids');
	held     int       := current_setting('pgadvisory.held');
	wait     int       := current_setting('pgadvisory.wait');
	seat     int       := current_setting('pgadvisory.seat');
	seats    int       := current_setting('pgadvisory.seats');
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
		IF seats > 0 THEN
			WHILE seats > 0 AND NOT pg_try_advisory_lock(seat_class, seat + seats - 1) LOOP
				seats := seats - 1;
			END LOOP;
			IF seats = 0 THEN
				PERFORM set_config('pgadvisory.held', '-2', true);
				EXIT;
			END IF;
			seat := seat + seats - 1;
		END IF;
		BEGIN
			PERFORM set_config('lock_timeout', greatest(1, ceil(extract(epoch FROM deadline - clock_timestamp()) * 1000))::int::text, true),
				set_config('pgadvisory.held', (held + 1)::text, true);
			held := held + CASE WHEN CASE
				WHEN pairs[held + 1] AND shared[held + 1] THEN pg_advisory_lock_shared((id >> 32)::int, ((id << 32) >> 32)::int)
				WHEN pairs[held + 1] THEN pg_advisory_lock((id >> 32)::int, ((id << 32) >> 32)::int)
				WHEN shared[held + 1] THEN pg_advisory_lock_shared(id)
				ELSE pg_advisory_lock(id) END::text = ''
				THEN CASE WHEN seats = 0 THEN 1 WHEN pg_advisory_unlock(seat_class, seat) THEN 1 END END;
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
END $pgadvisory$`, "seat_class", strconv.Itoa(int(lockid.SeatClass)))
