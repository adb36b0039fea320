package lockproto

// slotBlock announces the limit, and only then looks for another: of two who
// come at the same time, one at least sees the other. Then it tries the slots,
// from a random one on, so that many who come at the same time do not all try
// the same. If none is free it waits for one of them, as lockBlock does.
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
