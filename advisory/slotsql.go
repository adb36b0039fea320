package advisory

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
)

// slotScript is what one round trip of asking for a slot of a semaphore consists
// of. It selects the slot's number, or NULL, and another limit that it met, or 0.
func slotScript(s *Semaphore, wait int64, name string, c *contest) string {
	ids := make([]string, len(s.slots))
	for i, id := range s.slots {
		ids[i] = strconv.FormatInt(id, 10)
	}
	return beginScript(c.way.major) +
		fmt.Sprintf("SELECT set_config('pgadvisory.ids', '{%s}', true), set_config('pgadvisory.announcement', '%d', true), set_config('pgadvisory.wait', '%d', true); ",
			strings.Join(ids, ","), s.announcement(), wait) +
		slotBlock +
		fmt.Sprintf("; SELECT CASE WHEN current_setting('pgadvisory.slot') <> '' THEN CASE WHEN %s THEN CASE WHEN %s AND %s THEN current_setting('pgadvisory.slot')::bigint END ELSE CASE WHEN %s THEN %d END END END, "+
			"current_setting('pgadvisory.limit')::bigint; COMMIT", c.way.areAsBefore(), setName(hexText(name)), c.way.apply(), cleared, slotChanged)
}

// slotChanged is the slot when the settings are not as they were, and the session has
// none.
const slotChanged = -1

// slotBlock announces the limit, and only then looks for another: of two who
// come at the same time, one at least sees the other. Then it tries the slots,
// from a random one on, so that many who come at the same time do not all try
// the same. If none is free it waits for one of them, as scriptBlock does.
const slotBlock = `DO $pgadvisory$
DECLARE
	ids          bigint[] := current_setting('pgadvisory.ids');
	announcement bigint   := current_setting('pgadvisory.announcement');
	wait         int      := current_setting('pgadvisory.wait');
	n            int      := cardinality(ids);
	first        int      := floor(random() * n);
	slot         int;
	other        bigint;
BEGIN
	PERFORM pg_advisory_unlock_all(); -- what the session came with, or announced before
	IF NOT pg_try_advisory_lock_shared(announcement) THEN
		n := 0; -- somebody holds it as nobody should
	END IF;
	SELECT (l.objid::bigint & 1048575) INTO other FROM pg_locks l
		WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.mode = 'ShareLock'
		AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
		AND ((l.classid::bigint << 32 | l.objid::bigint) & ~1048575::bigint) = (announcement & ~1048575::bigint)
		AND (l.classid::bigint << 32 | l.objid::bigint) <> announcement LIMIT 1;
	IF other IS NULL THEN
		FOR i IN 0 .. n - 1 LOOP
			IF pg_try_advisory_lock(ids[(first + i) % n + 1]) THEN
				slot := (first + i) % n;
				EXIT;
			END IF;
		END LOOP;
		IF slot IS NULL AND wait > 0 AND n > 0 THEN
			BEGIN
				PERFORM set_config('lock_timeout', greatest(1, least(wait,
					ceil(extract(epoch FROM current_setting('deadlock_timeout')::interval) * 500)))::int::text, true);
				PERFORM pg_advisory_lock(ids[first + 1]);
				slot := first;
			EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
				slot := NULL;
			END;
		END IF;
	END IF;
	IF slot IS NULL THEN
		PERFORM pg_advisory_unlock_all();
	END IF;
	PERFORM set_config('pgadvisory.slot', coalesce(slot::text, ''), true);
	PERFORM set_config('pgadvisory.limit', coalesce(other, 0)::text, true);
END $pgadvisory$`

// askSlot tries the slots of a semaphore, or waits for one for one slice.
func (c *contest) askSlot(ctx context.Context, l *Locker, r request, name string, wait bool) error {
	limit, ms := l.config.HeartbeatTimeout, int64(0)
	if wait {
		limit, ms = limit+slice, slice.Milliseconds()
	}
	text := slotScript(r.slots, ms, name, c)
	var answer []*int64
	err := c.hold.Run(ctx, limit, func(ctx context.Context, conn *pgx.Conn) (err error) {
		answer, err = runScript(ctx, conn, text)
		return err
	})
	if err != nil {
		return err
	}
	if answer[0] != nil && *answer[0] == slotChanged {
		return c.meetAnew()
	}
	c.asked, c.stale, c.changed = true, 0, false
	if other := answer[1]; other != nil && *other != 0 {
		c.refusal = fmt.Errorf("%w: this one is %d, and another holds or waits with %d", ErrLimitDiffers, r.slots.limit, *other)
		return nil
	}
	if answer[0] == nil {
		return nil
	}
	c.granted, c.applied = true, true
	c.slot = int(*answer[0])
	return nil
}
