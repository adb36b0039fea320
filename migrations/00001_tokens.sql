-- +goose Up

-- Up has made the schema already, because the table that records the
-- migrations is in it; other tools have not.
CREATE SCHEMA IF NOT EXISTS fencing;

CREATE SEQUENCE fencing.token AS bigint
    MINVALUE 1 MAXVALUE 8796093022207 NO CYCLE CACHE 1;
COMMENT ON SEQUENCE fencing.token IS
    'Low 43 bits of the tokens; fencing.issue puts the epoch above them. No table owns it, so that RESTART IDENTITY can''t reach it.';

CREATE TABLE fencing.resource (
    name      text        COLLATE "C" PRIMARY KEY CHECK (name <> ''),
    mark      bigint      NOT NULL CHECK (mark > 0),
    raised_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    timeline  text        COLLATE "C" NOT NULL DEFAULT 'unknown' CHECK (timeline <> '')
) WITH (fillfactor = 50);
COMMENT ON TABLE fencing.resource IS
    'The mark of a resource is the token that was issued for it last. A write with any other token is refused.';
COMMENT ON COLUMN fencing.resource.timeline IS
    'That of the server when it issued the mark, as the names of WAL files have it, or unknown. Set by fencing.issue alone: while it is the current one, a write is checked for the mark only.';

CREATE TABLE fencing.origin (
    only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch_base        bigint  NOT NULL DEFAULT 0 CHECK (epoch_base >= 0),
    system_identifier bigint  NOT NULL,
    database          oid     NOT NULL
);
COMMENT ON TABLE fencing.origin IS
    'Where the tokens are issued. In a copy of the database it still names the original, and fencing.verify() says so.';
INSERT INTO fencing.origin (system_identifier, database)
SELECT (pg_control_system()).system_identifier, oid FROM pg_database WHERE datname = current_database();

-- +goose StatementBegin
CREATE FUNCTION fencing.epoch() RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Not of pg_control_checkpoint, which is late after a promotion.
    RETURN coalesce((SELECT o.epoch_base FROM fencing.origin o), 0)
        + ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint - 1;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.epoch() IS
    'Stands in the high bits of the tokens. It grows with each promotion, because the timeline does, so that a standby that lost the last tokens does not issue them again.';

-- +goose StatementBegin
CREATE FUNCTION fencing.issue(resource text) RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '200ms'
AS $$
DECLARE
    -- A collation that takes texts for equal would make one number of them.
    lock_key  bigint := hashtextextended(resource COLLATE "C", 0);
    write_key bigint := hashtextextended(resource COLLATE "C", 1);
    timeline  text   := left(pg_walfile_name(pg_current_wal_insert_lsn()), 8);
    token     bigint;
BEGIN
    IF resource = '' THEN
        RAISE EXCEPTION 'the name of a resource can''t be empty' USING ERRCODE = '22023';
    ELSIF octet_length(resource) > 2000 THEN
        RAISE EXCEPTION 'the name of a resource can have 2000 bytes at most; this one has %', octet_length(resource) USING ERRCODE = '22001';
    END IF;
    -- Nobody may supersede a holder without its lock: the lock is granted once
    -- more to the session that has it, and to no other while one has it. It is
    -- kept until the mark is committed.
    IF NOT pg_try_advisory_xact_lock(lock_key) THEN
        RAISE EXCEPTION 'another session holds the lock of resource %', to_json(resource) USING
            ERRCODE = '55006',
            HINT = format('Take it first: SELECT CASE WHEN pg_try_advisory_lock(%s) THEN fencing.issue(%L) END.', lock_key, resource);
    END IF;
    -- In a transaction block the writers of the resource wait for its end.
    IF current_setting('idle_in_transaction_session_timeout') = '0' THEN
        PERFORM set_config('idle_in_transaction_session_timeout', '60000', true);
    END IF;

    -- A token is worth nothing before its mark is durable, whatever the role
    -- is set to otherwise.
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    BEGIN
        -- Waits for the open transactions in which an earlier holder writes:
        -- they share this lock.
        PERFORM pg_advisory_xact_lock(write_key);
        -- The epoch is that of fencing.epoch. Either fencing.rebase waits until the
        -- mark is committed, or this waits for it, and reads what it has left: the
        -- tables are locked before the snapshot is taken, but for one that is older.
        -- Above the old mark the token heals a sequence that was set back.
        INSERT INTO fencing.resource AS r (name, mark, timeline) VALUES (resource COLLATE "C",
            (coalesce((SELECT o.epoch_base FROM fencing.origin o), 0) + ('x' || timeline)::bit(32)::bigint - 1) << 43 | nextval('fencing.token'),
            CASE WHEN current_setting('transaction_isolation') = 'read committed' THEN timeline ELSE 'unknown' END)
        ON CONFLICT (name) DO UPDATE
            SET mark = greatest(excluded.mark, r.mark + 1), raised_at = clock_timestamp(), timeline = excluded.timeline
        RETURNING mark INTO token;
    EXCEPTION WHEN lock_not_available THEN
        -- One of the sessions that it waits for; none for a prepared transaction, or if
        -- it was the table that was locked.
        RETURN coalesce((
            SELECT -min(l.pid)::bigint FROM pg_locks l
             WHERE l.locktype = 'advisory' AND l.granted AND l.pid <> pg_backend_pid()
               AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
               AND l.objsubid = 1 AND l.classid = ((write_key >> 32) & 4294967295)::oid
               AND l.objid = (write_key & 4294967295)::oid), 0);
    END;
    RETURN token;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.issue(text) IS
    'Draws the next token of a resource for the session that holds its advisory lock, and raises the mark. 0 or below is no token: a transaction in which an earlier holder has written is still open, in the session whose PID is the negated number, or was prepared, or the marks are locked, as by fencing.rebase; call again. Call it outside of a transaction block: the mark is raised when it commits.';

-- +goose StatementBegin
CREATE FUNCTION fencing.stamp(resource text, token bigint, max_idle interval DEFAULT '1 minute') RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    idle_limit  text := current_setting('idle_in_transaction_session_timeout');
    stamps      text := current_setting('fencing.stamps', true);
    max_idle_ms bigint := extract(epoch FROM max_idle) * 1000;
BEGIN
    -- In most cases this is the first stamp, and there is no limit. What follows would
    -- do the same, for more.
    IF coalesce(stamps, '') = '' AND idle_limit = '0' AND resource <> '' AND token > 0 AND max_idle_ms BETWEEN 1 AND 2147483647 THEN
        PERFORM set_config('fencing.stamps', json_build_object(resource, token)::text, true),
            set_config('idle_in_transaction_session_timeout', max_idle_ms::text, true);
        RETURN;
    END IF;
    IF resource IS NULL OR resource = '' THEN
        RAISE EXCEPTION 'the name of a resource can''t be empty' USING ERRCODE = '22023';
    END IF;
    IF token IS NULL OR token <= 0 THEN
        RAISE EXCEPTION 'token % is not valid: tokens start at 1', coalesce(token::text, 'NULL') USING
            ERRCODE = '22023',
            HINT = 'Stamp with the token that fencing.issue returned when the lock was granted.';
    END IF;
    IF max_idle_ms IS NULL OR max_idle_ms <= 0 THEN
        RAISE EXCEPTION 'max_idle must be positive' USING ERRCODE = '22023';
    END IF;
    max_idle_ms := least(max_idle_ms, 2147483647); -- the most that the setting takes
    PERFORM set_config('fencing.stamps', (coalesce(nullif(stamps, ''), '{}')::jsonb || jsonb_build_object(resource, token))::text, true);
    -- The next holder waits for the writes of this transaction.
    IF idle_limit = '0' OR extract(epoch FROM idle_limit::interval) * 1000 > max_idle_ms THEN
        PERFORM set_config('idle_in_transaction_session_timeout', max_idle_ms::text, true);
    END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.stamp(text, bigint, interval) IS
    'Lets this transaction write to what is guarded for the resource, as the holder of the token. Called for several resources, it stamps for each. Until it ends the transaction may be idle for max_idle at most.';

-- +goose StatementBegin
CREATE FUNCTION fencing.rebase() RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    highest bigint;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'fencing.rebase can''t see all marks in %', current_setting('transaction_isolation') USING
            ERRCODE = '25001',
            HINT = 'Call it in a transaction of its own: BEGIN ISOLATION LEVEL READ COMMITTED; SELECT fencing.rebase(); COMMIT.';
    END IF;
    -- What was drawn without the new base is marked before this is granted, and who
    -- has checked a mark in an older snapshot is done. All rows are written, so that
    -- such a snapshot fails to serialize from then on.
    LOCK TABLE fencing.resource IN EXCLUSIVE MODE;
    UPDATE fencing.resource SET timeline = DEFAULT;
    highest := (SELECT coalesce(max(r.mark), 0) >> 43 FROM fencing.resource r);
    -- Not by one: the original may have been promoted since, or before, without
    -- a token from then in a mark. A restore of the schema alone leaves the table
    -- empty.
    INSERT INTO fencing.origin AS o (epoch_base, system_identifier, database)
    SELECT greatest(highest - coalesce(fencing.epoch(), highest), 0) + 1000, (pg_control_system()).system_identifier, d.oid
      FROM pg_database d WHERE d.datname = current_database()
    ON CONFLICT (only_row) DO UPDATE SET
        epoch_base = o.epoch_base + excluded.epoch_base,
        system_identifier = excluded.system_identifier,
        database = excluded.database;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.rebase() IS
    'Puts the tokens that are issued from now on above all that the original of this copy issues before a thousand promotions. To be called once in a database that was restored from a dump, by the owner of the schema.';

-- +goose StatementBegin
CREATE FUNCTION fencing.grant_to(role regrole) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF role IS NULL THEN
        RAISE EXCEPTION 'the role can''t be NULL' USING ERRCODE = '22023';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = role) THEN
        RAISE EXCEPTION 'there is no role %', role USING ERRCODE = '42704';
    END IF;
    -- Else GRANT and REVOKE may do nothing, with a warning.
    IF NOT (SELECT pg_has_role(n.nspowner, 'USAGE') FROM pg_namespace n WHERE n.nspname = 'fencing') THEN
        RAISE EXCEPTION 'must be owner of schema fencing' USING ERRCODE = '42501';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA fencing TO %s', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION fencing.issue(text), fencing.stamp(text, bigint, interval) TO %s', role);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.grant_to(regrole) IS
    'Gives a role all that it needs to lock resources and to stamp its transactions, and nothing by which it could move a mark otherwise.';

-- +goose StatementBegin
CREATE FUNCTION fencing.revoke_from(role regrole) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF role IS NULL THEN
        RAISE EXCEPTION 'the role can''t be NULL' USING ERRCODE = '22023';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_roles r WHERE r.oid = role) THEN
        RAISE EXCEPTION 'there is no role %', role USING ERRCODE = '42704';
    END IF;
    -- Else GRANT and REVOKE may do nothing, with a warning.
    IF NOT (SELECT pg_has_role(n.nspowner, 'USAGE') FROM pg_namespace n WHERE n.nspname = 'fencing') THEN
        RAISE EXCEPTION 'must be owner of schema fencing' USING ERRCODE = '42501';
    END IF;
    EXECUTE format('REVOKE ALL ON FUNCTION fencing.issue(text), fencing.stamp(text, bigint, interval) FROM %s', role);
    EXECUTE format('REVOKE ALL ON SCHEMA fencing FROM %s', role);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.revoke_from(regrole) IS
    'Takes away what fencing.grant_to gave.';

-- +goose StatementBegin
CREATE FUNCTION fencing.version() RETURNS bigint
LANGUAGE sql IMMUTABLE
AS 'SELECT 1::bigint';
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.version() IS
    'The number of the last migration, whichever tool has run it.';

-- Whoever may use the schema may read; USAGE on it comes from grant_to.
GRANT SELECT ON fencing.resource, fencing.origin TO PUBLIC;
REVOKE ALL ON FUNCTION fencing.issue(text), fencing.stamp(text, bigint, interval), fencing.rebase() FROM PUBLIC;

-- +goose Down

DROP FUNCTION fencing.version();
DROP FUNCTION fencing.revoke_from(regrole);
DROP FUNCTION fencing.grant_to(regrole);
DROP FUNCTION fencing.rebase();
DROP FUNCTION fencing.stamp(text, bigint, interval);
DROP FUNCTION fencing.issue(text);
DROP FUNCTION fencing.epoch();
DROP TABLE fencing.origin;
DROP TABLE fencing.resource;
DROP SEQUENCE fencing.token;

-- Down of this package drops the schema itself, with the table in it.
-- +goose StatementBegin
DO $$
BEGIN
    IF to_regclass('fencing.migration') IS NULL THEN
        DROP SCHEMA fencing;
    END IF;
END $$;
-- +goose StatementEnd
