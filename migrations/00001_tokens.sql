-- +goose Up

-- Names without a schema mean PostgreSQL's own in all that follows, whatever the
-- session's search_path is: otherwise it would decide what is run here, and what
-- the schema keeps. The end of the file puts the path back for the tool.
-- +goose StatementBegin
DO $$
BEGIN
    PERFORM pg_catalog.set_config('fencing.search_path', pg_catalog.current_setting('search_path'), true);
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
END $$;
-- +goose StatementEnd

-- Whoever owns a schema can replace the functions in it. So it must be new, or
-- belong to the role that installs and be empty. Up of this package makes it
-- before, because the table that records the migrations is in it.
-- +goose StatementBegin
DO $$
DECLARE
    found_schema record;
    contents     text;
BEGIN
    IF current_setting('search_path') <> 'pg_catalog, pg_temp' THEN
        RAISE EXCEPTION 'run the whole file in one transaction' USING ERRCODE = '25001';
    END IF;
    SELECT n.oid, n.nspowner AS owner, n.nspacl AS acl INTO found_schema FROM pg_namespace n WHERE n.nspname = 'fencing';
    IF found_schema.oid IS NULL THEN
        CREATE SCHEMA fencing;
        RETURN;
    END IF;
    IF pg_get_userbyid(found_schema.owner) <> current_user THEN
        RAISE EXCEPTION 'the schema fencing already exists and belongs to role %', quote_ident(pg_get_userbyid(found_schema.owner)) USING
            ERRCODE = '42501',
            HINT = 'Drop the schema if nothing needs it, or install fencing as its owner.';
    END IF;
    IF EXISTS (SELECT FROM aclexplode(found_schema.acl) a WHERE a.privilege_type = 'CREATE' AND a.grantee <> found_schema.owner) THEN
        RAISE EXCEPTION 'the schema fencing already exists, and other roles may create objects in it' USING
            ERRCODE = '42501',
            HINT = 'Revoke that privilege, or drop the schema.';
    END IF;
    SELECT min(pg_describe_object(d.classid, d.objid, 0)) || CASE WHEN count(*) > 1 THEN format(' and %s more objects', count(*) - 1) ELSE '' END INTO contents
      FROM pg_depend d
     WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = found_schema.oid AND d.deptype = 'n'
       AND NOT (d.classid = 'pg_class'::regclass
           AND EXISTS (SELECT FROM pg_class c WHERE c.oid = d.objid AND c.relowner = found_schema.owner)
           AND d.objid IN (
               coalesce(to_regclass('fencing.migration'), 0::oid),
               coalesce(pg_get_serial_sequence(to_regclass('fencing.migration')::text, 'id')::regclass, 0::oid)));
    IF contents IS NOT NULL THEN
        RAISE EXCEPTION 'the schema fencing already exists and contains %', contents USING
            ERRCODE = '42P06',
            HINT = 'Drop the schema, or move its contents elsewhere.';
    END IF;
END $$;
-- +goose StatementEnd

CREATE SEQUENCE fencing.token AS bigint
    MINVALUE 1 MAXVALUE 9007199254740991 NO CYCLE CACHE 1;
COMMENT ON SEQUENCE fencing.token IS
    'The numbers of tokens. No table owns it, so that RESTART IDENTITY can''t reach it. It ends where a double can no longer tell two numbers apart.';

-- The name is in no unique index of its own, and the mark is in the key: while an
-- old snapshot is open the server keeps each version of a row, and a search by the
-- name alone would walk all of them. That a name has one row is the work of
-- fencing.issue.
CREATE TABLE fencing.resource (
    name      text        COLLATE "C" NOT NULL CHECK (name <> ''),
    mark      bigint      NOT NULL CHECK (mark > 0),
    raised_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    epoch     text        COLLATE "C" NOT NULL DEFAULT 'unknown' CHECK (epoch <> ''),
    PRIMARY KEY (name, mark)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
COMMENT ON TABLE fencing.resource IS
    'The mark of a resource is the token that was issued for it last. A write with any other token is refused.';
COMMENT ON COLUMN fencing.resource.epoch IS
    'What fencing.epoch() was when the mark was issued, or unknown. A token is current only as long as that is the epoch of the server.';

CREATE TABLE fencing.known_resource (
    name text COLLATE "C" PRIMARY KEY
);
COMMENT ON TABLE fencing.known_resource IS
    'The names for which a token was ever issued. By it, who issues a first one in an older snapshot learns that it is not the first.';

CREATE TABLE fencing.origin (
    only_row          boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    epoch             text    COLLATE "C" NOT NULL DEFAULT 'unknown' CHECK (epoch <> ''),
    system_identifier bigint,
    database          oid     NOT NULL,
    since             timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE fencing.origin IS
    'Where the tokens are issued. In a copy of the database it still names the original, and fencing.verify() says so.';
COMMENT ON COLUMN fencing.origin.epoch IS
    'What fencing.epoch() was at the installation, or unknown after fencing.rebase(): a resource without a mark has never had one only if it is still the same.';

-- The timeline of the server grows with each promotion. Some managed services
-- don't let it be read. Whether this one does is found out by a call, since the
-- catalogs of those services are not reliable. pg_control_checkpoint is no
-- substitute: it is late after a promotion.
--
-- pg_walfile_name is immutable for the planner, which is right: the timeline of a
-- server that takes writes does not change, and a standby answers with an error.
-- +goose StatementBegin
CREATE FUNCTION fencing.choose_epoch_source() RETURNS text
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    source text := 'timeline';
    body   text := 'SELECT pg_catalog.left(pg_catalog.pg_walfile_name(''0/1''::pg_catalog.pg_lsn), 8)';
BEGIN
    BEGIN
        EXECUTE body;
    EXCEPTION WHEN feature_not_supported OR object_not_in_prerequisite_state OR insufficient_privilege OR undefined_function THEN
        source := 'constant';
        body := 'SELECT ''constant''::pg_catalog.text';
    END;
    EXECUTE format('CREATE OR REPLACE FUNCTION fencing.chosen_epoch() RETURNS text LANGUAGE sql STABLE AS %L', body);
    RETURN source;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.choose_epoch_source() IS
    'Finds out where the epoch can be had: timeline, or constant where the server does not tell its timeline. To be called by the owner of the schema when that has changed; fencing.rebase() does it too.';
-- +goose StatementBegin
DO $$ BEGIN PERFORM fencing.choose_epoch_source(); END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.chosen_epoch() IS
    'The epoch from the source that fencing.choose_epoch_source() has chosen. It fails if that has gone since; fencing.epoch() does not.';

-- +goose StatementBegin
CREATE FUNCTION fencing.epoch() RETURNS text
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN fencing.chosen_epoch();
EXCEPTION WHEN feature_not_supported OR object_not_in_prerequisite_state OR insufficient_privilege OR undefined_function THEN
    RETURN 'constant';
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.epoch() IS
    'Another text after each promotion of a standby: the timeline. It is constant where the server does not tell that; a promotion alone then makes no token stale.';

-- +goose StatementBegin
CREATE FUNCTION fencing.epoch_source() RETURNS text
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE fencing.epoch() WHEN 'constant' THEN 'constant' ELSE 'timeline' END
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.epoch_source() IS
    'Where the epoch comes from: timeline or constant.';

-- +goose StatementBegin
CREATE FUNCTION fencing.notes() RETURNS SETOF text
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'the server does not tell its timeline: a promotion alone makes no token stale, only the next one that is drawn for the resource; '
        || 'after one that lost transactions SELECT fencing.rebase() makes all of them stale'
    WHERE fencing.epoch_source() = 'constant'
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.notes() IS
    'What fencing can''t promise on this server, although the installation is whole.';

-- +goose StatementBegin
CREATE FUNCTION fencing.system_identifier() RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT c.system_identifier FROM pg_control_system() c);
EXCEPTION WHEN feature_not_supported OR object_not_in_prerequisite_state OR insufficient_privilege OR undefined_function THEN
    RETURN NULL;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.system_identifier() IS
    'Of the server, or NULL where it does not tell.';

INSERT INTO fencing.origin (epoch, system_identifier, database)
SELECT fencing.epoch(), fencing.system_identifier(), d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database();

-- A token that no other server, promoted from the same original, issues for the
-- resource. That it is unique is what keeps the holders of the other out: 36 random
-- bits, which setseed doesn't reach. That it is above the tokens of before is the
-- clock's: microseconds, below 2^53 until the year 2311.
-- +goose StatementBegin
CREATE FUNCTION fencing.token_of_new_epoch(mark bigint) RETURNS bigint
LANGUAGE sql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT greatest(mark, (extract(epoch FROM clock_timestamp() - timestamptz '2026-01-01 00:00:00+00') * 1000000)::bigint, 0) + 1
        + ('x' || left(replace(gen_random_uuid()::text, '-', ''), 9))::bit(36)::bigint
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencing.issue(resource text) RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '200ms'
AS $$
DECLARE
    -- A collation that takes texts for equal would make one number of them.
    resource_name text COLLATE "C" := resource;
    now_epoch     text;
    number        bigint;
    token         bigint;
    attempts      int;
    idle_limit    text;
    locked        boolean; -- an assignment costs less than PERFORM
BEGIN
    IF octet_length(resource_name) NOT BETWEEN 1 AND 2000 THEN
        IF resource_name = '' THEN
            RAISE EXCEPTION 'the name of a resource can''t be empty' USING ERRCODE = '22023';
        END IF;
        RAISE EXCEPTION 'the name of a resource can have 2000 bytes at most; this one has %', octet_length(resource_name) USING ERRCODE = '22001';
    END IF;
    -- In a transaction block the writers of the resource wait for its end.
    idle_limit := CASE WHEN current_setting('idle_in_transaction_session_timeout') = '0'
        THEN set_config('idle_in_transaction_session_timeout', '60000', true) END;

    -- Once, or twice where the server tells its timeline no more.
    LOOP
        -- What a block with an EXCEPTION clause locks belongs to the transaction.
        -- Otherwise it would be the cursor's whose FETCH calls this, and a cursor that
        -- fails gives it back before the transaction ends.
        BEGIN
            -- Nobody may supersede a holder without its lock: the lock is granted once
            -- more to the session that has it, and to no other while one has it. It is
            -- kept until the mark is committed.
            IF NOT pg_try_advisory_xact_lock(hashtextextended(resource_name, 0)) THEN
                RAISE EXCEPTION 'another session holds the lock of resource %', to_json(resource) USING
                    ERRCODE = '55006',
                    HINT = format('Take it first: SELECT CASE WHEN pg_try_advisory_lock(%s) THEN fencing.issue(%L) END.', hashtextextended(resource_name, 0), resource);
            END IF;
            -- Waits for the open transactions in which an earlier holder writes:
            -- they share this lock.
            locked := pg_advisory_xact_lock(hashtextextended(resource_name, 1)) IS NULL;
            now_epoch := coalesce(now_epoch, fencing.chosen_epoch());
            number := nextval('fencing.token');
            attempts := 1;
            LOOP
                -- Either fencing.rebase waits until the mark is committed, or this waits
                -- for it, and reads what it has left: the tables are locked before the
                -- snapshot is taken, but for one that is older, and that fails here.
                --
                -- Where the sequence is behind, because somebody has set it back or the mark
                -- was made by the clock, a number is left out at random: a token that was
                -- drawn and rolled back is not drawn again for the next holder.
                UPDATE ONLY fencing.resource r SET
                    mark = CASE WHEN r.epoch <> now_epoch THEN fencing.token_of_new_epoch(r.mark)
                        WHEN number > r.mark THEN number
                        ELSE r.mark + 1 + ('x' || left(gen_random_uuid()::text, 5))::bit(20)::int END,
                    epoch = now_epoch, raised_at = clock_timestamp()
                 WHERE r.name = resource_name AND r.mark = (
                    SELECT o.mark FROM ONLY fencing.resource o WHERE o.name = resource_name ORDER BY o.mark DESC LIMIT 1)
                RETURNING r.mark INTO token;
                EXIT WHEN token IS NOT NULL;
                token := fencing.issue_first(resource, now_epoch, number);
                EXIT WHEN token IS NOT NULL; -- or somebody has changed the mark by hand
                IF attempts = 10 THEN
                    RAISE EXCEPTION 'the mark of resource % can''t be raised', to_json(resource) USING
                        ERRCODE = '55000',
                        HINT = 'Something keeps fencing.resource from being updated: see SELECT * FROM fencing.verify().';
                END IF;
                attempts := attempts + 1;
            END LOOP;
            RETURN token;
        EXCEPTION
            WHEN lock_not_available THEN
                -- One of the sessions that it waits for; none for a prepared transaction, or
                -- if it was the table that was locked.
                RETURN coalesce((
                    SELECT -min(l.pid)::bigint FROM pg_locks l, hashtextextended(resource_name, 1) AS k (write_key)
                     WHERE l.locktype = 'advisory' AND l.granted AND l.pid <> pg_backend_pid()
                       AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                       AND l.objsubid = 1 AND l.classid = ((k.write_key >> 32) & 4294967295)::oid
                       AND l.objid = (k.write_key & 4294967295)::oid), 0);
            WHEN feature_not_supported OR object_not_in_prerequisite_state OR insufficient_privilege OR undefined_function THEN
                -- As fencing.epoch has it.
                IF now_epoch IS NOT NULL THEN
                    RAISE;
                END IF;
                now_epoch := 'constant';
        END;
    END LOOP;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.issue(text) IS
    'Draws the next token of a resource for the session that holds its advisory lock, and raises the mark. 0 or below is no token: a transaction in which an earlier holder has written is still open, in the session whose PID is the negated number, or was prepared, or the marks are locked, as by fencing.rebase; call again. Call it outside of a transaction block: the mark is raised when it commits.';

-- The first token of a resource, or NULL if somebody has just changed its mark. It
-- runs with the rights and settings of fencing.issue.
-- +goose StatementBegin
CREATE FUNCTION fencing.issue_first(resource text, epoch text, number bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    is_new boolean;
    token  bigint;
BEGIN
    -- A snapshot that is older than the first token of the resource, or than a
    -- fencing.rebase, fails to serialize in these two.
    INSERT INTO fencing.known_resource (name) VALUES (resource COLLATE "C") ON CONFLICT DO NOTHING;
    is_new := found;
    -- Of a name whose mark is gone, written anew for the same reason.
    IF NOT is_new THEN
        UPDATE fencing.known_resource k SET name = k.name WHERE k.name = issue_first.resource COLLATE "C";
    END IF;
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM FROM fencing.origin o FOR SHARE;
    END IF;
    INSERT INTO fencing.resource (name, mark, epoch)
    SELECT resource COLLATE "C", CASE WHEN is_new AND EXISTS (SELECT FROM fencing.origin o WHERE o.epoch = issue_first.epoch)
            THEN number ELSE fencing.token_of_new_epoch(0) END, epoch
     WHERE NOT EXISTS (SELECT FROM ONLY fencing.resource r WHERE r.name = issue_first.resource COLLATE "C")
    RETURNING mark INTO token;
    RETURN token;
END $$;
-- +goose StatementEnd

-- A token is worth nothing before its mark is durable, whatever the role is set
-- to otherwise. What fencing.issue sets, a function around it may take back;
-- this runs at the commit.
-- +goose StatementBegin
CREATE FUNCTION fencing.make_durable() RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Every token pays for this, and the rest is for few.
    IF current_setting('synchronous_commit') IN ('on', 'remote_apply') AND current_query() !~* 'prepare' THEN
        RETURN NULL;
    END IF;
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    IF current_query() ~* E'(^|;)(\\s|--[^\\n\\r]*[\\n\\r]|/\\*.*?\\*/)*prepare(\\s|--[^\\n\\r]*[\\n\\r]|/\\*.*?\\*/)+transaction\\M' THEN
        RAISE EXCEPTION 'a transaction that has drawn a token can''t be prepared' USING
            ERRCODE = '0A000',
            DETAIL = 'Until it was committed or rolled back nobody could lock the resource or write to what is guarded for it.',
            HINT = 'Draw the token in a transaction of its own.';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE CONSTRAINT TRIGGER make_durable AFTER INSERT OR UPDATE ON fencing.resource
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fencing.make_durable();
ALTER TABLE fencing.resource ENABLE ALWAYS TRIGGER make_durable;

-- The token for which this transaction is stamped, or NULL. fencing.stamp begins
-- each stamp on a line of its own, which a name in JSON can't contain, so that one is
-- found without reading all of them; what else was set is read as JSON.
-- +goose StatementBegin
CREATE FUNCTION fencing.stamped(resource text) RETURNS bigint
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    stamps text := current_setting('fencing.stamps', true);
    token  text := left(split_part(stamps, E'\n' || to_json(resource) || ':', 2), 20);
BEGIN
    IF token <> '' THEN
        RETURN split_part(split_part(token, ',', 1), '}', 1);
    END IF;
    RETURN nullif(stamps, '')::jsonb ->> resource;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.stamped(text) IS
    'The token for which this transaction is stamped for the resource; NULL if for none.';

-- +goose StatementBegin
CREATE FUNCTION fencing.issue_after(resource text, seen bigint) RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Who issues keeps this lock until the mark is committed, so that nobody does
    -- between the look at the mark and the issue.
    IF resource <> '' AND NOT pg_try_advisory_xact_lock(hashtextextended(resource COLLATE "C", 0)) THEN
        RETURN 0;
    END IF;
    IF seen <> coalesce((SELECT max(r.mark) FROM ONLY fencing.resource r WHERE r.name = resource COLLATE "C"), 0) THEN
        RETURN NULL;
    END IF;
    RETURN fencing.issue(resource);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.issue_after(text, bigint) IS
    'For a holder whose lock another service keeps: fencing.issue if the mark of the resource is still the one that was seen, 0 for none. NULL if it is not: another holder has drawn a token since; find out who holds the lock before you read the mark anew. 0 also while another session draws a token, or holds the advisory lock of the resource.';

-- +goose StatementBegin
CREATE FUNCTION fencing.stamp(resource text, token bigint, max_idle interval DEFAULT '1 minute') RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    idle_limit  text := current_setting('idle_in_transaction_session_timeout');
    stamps      text := current_setting('fencing.stamps', true);
    name        text := E'\n' || to_json(resource) || ':';
    max_idle_ms bigint := extract(epoch FROM max_idle) * 1000;
BEGIN
    -- In most cases this is the first stamp, and there is no limit. What follows would
    -- do the same, for more.
    IF coalesce(stamps, '') = '' AND idle_limit = '0' AND resource <> '' AND token > 0 AND max_idle_ms BETWEEN 1 AND 2147483647 THEN
        PERFORM set_config('fencing.stamps', '{' || name || token || '}', true),
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
    IF coalesce(stamps, '') = '' THEN
        stamps := '{' || name || token || '}';
    ELSIF starts_with(stamps, E'{\n') AND strpos(stamps, name) = 0 THEN
        -- To read all of them for each would take the square of their number.
        stamps := '{' || name || token || ',' || substr(stamps, 2);
    ELSE
        stamps := (SELECT '{' || string_agg(E'\n' || to_json(s.key) || ':' || s.value, ',') || '}'
            FROM jsonb_each_text(stamps::jsonb || jsonb_build_object(resource, token)) s);
    END IF;
    PERFORM set_config('fencing.stamps', stamps, true);
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
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'fencing.rebase can''t see all marks in %', current_setting('transaction_isolation') USING
            ERRCODE = '25001',
            HINT = 'Call it in a transaction of its own: BEGIN ISOLATION LEVEL READ COMMITTED; SELECT fencing.rebase(); COMMIT.';
    END IF;
    -- What was drawn before is marked before this is granted, and who has checked a
    -- mark in an older snapshot is done. All rows are written, so that such a
    -- snapshot fails to serialize from then on. A restore of the schema alone leaves
    -- the tables empty.
    LOCK TABLE fencing.resource IN EXCLUSIVE MODE;
    UPDATE fencing.resource SET epoch = 'unknown';
    INSERT INTO fencing.origin AS o (epoch, system_identifier, database)
    SELECT 'unknown', fencing.system_identifier(), d.oid FROM pg_database d WHERE d.datname = current_database()
    ON CONFLICT (only_row) DO UPDATE SET
        epoch = excluded.epoch, system_identifier = excluded.system_identifier, database = excluded.database, since = excluded.since;
    PERFORM fencing.choose_epoch_source();
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.rebase() IS
    'Makes all tokens of before stale, and those that are issued from now on different from all that another copy of this database issues. To be called once in a database that was restored from a dump, by the owner of the schema.';

-- What is in the schema, and who may do what with it besides the owner: everybody
-- who may use the schema, and those whom fencing.grant_to has let. Who may do
-- neither is nobody. A function that is not named here, fencing.verify() has no
-- opinion about. Names are spelled so that no search_path decides what they mean.
-- +goose StatementBegin
CREATE FUNCTION fencing.objects()
RETURNS TABLE (class oid, object oid, kind text, name text, owner oid, acl aclitem[], everybody text, granted text, is_known boolean)
LANGUAGE sql STABLE ROWS 40
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
AS $$
    SELECT 'pg_namespace'::regclass::oid, n.oid, 'SCHEMA', 'fencing', n.nspowner, coalesce(n.nspacl, acldefault('n', n.nspowner)), NULL, 'USAGE', true
        FROM pg_namespace n WHERE n.nspname = 'fencing'
    UNION ALL
    SELECT 'pg_class'::regclass, c.oid, CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, format('fencing.%I', c.relname), c.relowner,
        coalesce(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", c.relowner)), r.may, r.may, true
        FROM pg_class c LEFT JOIN (VALUES ('resource', 'SELECT'), ('origin', 'SELECT'), ('token', 'SELECT'), ('guarded', 'SELECT')) r (name, may) ON r.name = c.relname
        WHERE c.relnamespace = 'fencing'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    UNION ALL
    SELECT 'pg_proc'::regclass, p.oid, CASE p.prokind WHEN 'p' THEN 'PROCEDURE' WHEN 'a' THEN 'AGGREGATE' ELSE 'FUNCTION' END,
        format('fencing.%I(%s)', p.proname, (SELECT string_agg(format('%I.%I', n.nspname, t.typname), ', ' ORDER BY a.number)
            FROM unnest(p.proargtypes) WITH ORDINALITY a (type, number) JOIN pg_type t ON t.oid = a.type JOIN pg_namespace n ON n.oid = t.typnamespace)),
        p.proowner, coalesce(p.proacl, acldefault('f', p.proowner)),
        CASE WHEN f.may = 'everybody' THEN 'EXECUTE' END, CASE WHEN f.may IN ('everybody', 'granted') THEN 'EXECUTE' END, f.may IS NOT NULL
        FROM pg_proc p LEFT JOIN (VALUES
            ('issue', 'granted'), ('issue_after', 'granted'), ('stamp', 'granted'),
            ('rebase', 'nobody'), ('choose_epoch_source', 'nobody'), ('issue_first', 'nobody'), ('token_of_new_epoch', 'nobody'),
            ('share_writing', 'nobody'), ('check_write', 'nobody'), ('is_current', 'nobody'), ('check_values', 'nobody'), ('refuse_shadows', 'nobody'), ('refuse_column', 'nobody'),
            ('check_statement', 'everybody'), ('check_by_', 'everybody'), ('check_row', 'everybody'),
            ('checker', 'everybody'), ('checker_body', 'everybody'), ('checkers', 'everybody'), ('make_checker', 'everybody'), ('refuse_truncate', 'everybody'), ('stamp_row', 'everybody'),
            ('version', 'everybody'), ('epoch', 'everybody'), ('chosen_epoch', 'everybody'), ('epoch_source', 'everybody'), ('notes', 'everybody'),
            ('system_identifier', 'everybody'), ('make_durable', 'everybody'), ('stamped', 'everybody'), ('verify', 'everybody'), ('guard', 'everybody'), ('guard_by', 'everybody'), ('unguard', 'everybody'),
            ('start', 'everybody'), ('complete', 'everybody'), ('record', 'everybody'), ('wanted', 'everybody'), ('compare', 'everybody'),
            ('faults', 'everybody'), ('family', 'everybody'), ('triggers', 'everybody'), ('arguments', 'everybody'), ('unfit', 'everybody'),
            ('objects', 'everybody'), ('privilege_faults', 'everybody'), ('installation_faults', 'everybody'), ('present', 'everybody'),
            ('installed', 'everybody'), ('tags', 'everybody')) f (name, may) ON f.name = CASE WHEN p.proname ~ '^check_by_[0-9a-f]{32}$' THEN 'check_by_' ELSE p.proname END
        WHERE p.pronamespace = 'fencing'::regnamespace
$$;
-- +goose StatementEnd

-- Which privileges and owners are not as fencing.objects has them. The
-- installation runs what this says, so that no default privilege decides.
-- +goose StatementBegin
CREATE FUNCTION fencing.privilege_faults() RETURNS TABLE (problem text, fix text)
LANGUAGE sql STABLE ROWS 1
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
AS $$
    WITH o AS MATERIALIZED (
        SELECT o.*, lower(o.kind) || ' ' || CASE o.class WHEN 'pg_proc'::regclass THEN o.object::regprocedure::text ELSE o.name END AS title FROM fencing.objects() o
    ), held AS (
        -- What another role than the owner has passed on goes with its right to do so.
        SELECT o.kind, o.name, o.title, '' AS of_column, e.grantee, e.privilege_type AS may, e.is_grantable,
            e.privilege_type IS NOT DISTINCT FROM CASE e.grantee WHEN 0 THEN o.everybody ELSE o.granted END
            OR e.privilege_type = 'SELECT' OR NOT o.is_known AS is_fine
            FROM o, aclexplode(o.acl) e WHERE e.grantee <> o.owner AND e.grantor = o.owner
        UNION ALL
        SELECT o.kind, o.name, o.title, format(' (%I)', a.attname), e.grantee, e.privilege_type, e.is_grantable, e.privilege_type = 'SELECT'
            FROM o JOIN pg_attribute a ON a.attrelid = o.object AND o.class = 'pg_class'::regclass, aclexplode(a.attacl) e
            WHERE e.grantee <> o.owner AND e.grantor = o.owner
    ), holder AS (
        SELECT h.*, CASE h.grantee WHEN 0 THEN 'PUBLIC' ELSE h.grantee::regrole::text END AS role FROM held h
    )
    SELECT format('%s has %s on the %s%s', h.role, string_agg(h.may, ', ' ORDER BY h.may), h.title, h.of_column),
        format('REVOKE %s ON %s %s FROM %s CASCADE', string_agg(h.may || h.of_column, ', ' ORDER BY h.may), h.kind, h.name, h.role)
        FROM holder h WHERE NOT h.is_fine GROUP BY h.kind, h.name, h.title, h.of_column, h.role
    UNION ALL
    SELECT format('%s may grant others %s on the %s%s', h.role, string_agg(h.may, ', ' ORDER BY h.may), h.title, h.of_column),
        format('REVOKE GRANT OPTION FOR %s ON %s %s FROM %s CASCADE', string_agg(h.may || h.of_column, ', ' ORDER BY h.may), h.kind, h.name, h.role)
        FROM holder h WHERE h.is_fine AND h.is_grantable GROUP BY h.kind, h.name, h.title, h.of_column, h.role
    UNION ALL
    SELECT format('PUBLIC lacks %s on the %s, which whoever may use the schema needs', o.everybody, o.title),
        format('GRANT %s ON %s %s TO PUBLIC', o.everybody, o.kind, o.name)
        FROM o WHERE o.everybody IS NOT NULL AND NOT EXISTS (SELECT FROM aclexplode(o.acl) e WHERE e.grantee = 0 AND e.privilege_type = o.everybody)
    UNION ALL
    SELECT format('%s, who owns the %s, lacks %s on it', o.owner::regrole, o.title, string_agg(r.may, ', ' ORDER BY r.may)),
        format('GRANT %s ON %s %s TO %s', string_agg(r.may, ', ' ORDER BY r.may), o.kind, o.name, o.owner::regrole)
        FROM o JOIN (VALUES ('SCHEMA', 'USAGE'), ('SCHEMA', 'CREATE'), ('TABLE', 'SELECT'), ('TABLE', 'INSERT'), ('TABLE', 'UPDATE'), ('TABLE', 'DELETE'), ('SEQUENCE', 'USAGE'),
            ('SEQUENCE', 'SELECT'), ('SEQUENCE', 'UPDATE'), ('FUNCTION', 'EXECUTE')) r (kind, may) ON r.kind = o.kind
        WHERE NOT EXISTS (SELECT FROM aclexplode(o.acl) e WHERE e.grantee = o.owner AND e.privilege_type = r.may)
        AND NOT (o.kind = 'FUNCTION' AND EXISTS (SELECT FROM aclexplode(o.acl) e WHERE e.grantee = 0))
        GROUP BY o.kind, o.name, o.title, o.owner
    UNION ALL
    SELECT format('the %s has another owner than the schema, who can change what it does', o.title), format('ALTER %s %s OWNER TO %s', o.kind, o.name, n.owner::regrole)
        FROM o, o n WHERE n.kind = 'SCHEMA' AND o.owner <> n.owner
        AND NOT EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = o.object AND o.kind = 'SEQUENCE'
            AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i'))
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencing.grant_to(role regrole) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    o record;
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
    -- Also what everybody has, because a restore may have left that out.
    FOR o IN SELECT * FROM fencing.objects() LOOP
        CONTINUE WHEN o.granted IS NULL;
        EXECUTE format('GRANT %s ON %s %s TO %s', o.granted, o.kind, o.name, role);
    END LOOP;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.grant_to(regrole) IS
    'Gives a role all that it needs to lock resources and to stamp its transactions, and nothing by which it could move a mark otherwise.';

-- +goose StatementBegin
CREATE FUNCTION fencing.revoke_from(role regrole) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    o record;
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
    -- The owner keeps what is its own.
    FOR o IN SELECT * FROM fencing.objects() LOOP
        CONTINUE WHEN o.granted IS NULL OR o.owner = role;
        EXECUTE format('REVOKE ALL ON %s %s FROM %s', o.kind, o.name, role);
    END LOOP;
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

-- Whoever may use the schema may read; USAGE on it comes from grant_to. What
-- default privileges have given away is taken back.
-- +goose StatementBegin
DO $$
DECLARE
    fixes text[] := (SELECT pg_catalog.array_agg(DISTINCT pg_catalog.format('REVOKE ALL ON %s %s FROM %s CASCADE', o.kind, o.name,
            CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE e.grantee::pg_catalog.regrole::pg_catalog.text END))
        FROM fencing.objects() o, pg_catalog.aclexplode(o.acl) e WHERE e.grantee <> o.owner AND (e.grantee <> 0 OR o.class <> 'pg_catalog.pg_proc'::pg_catalog.regclass));
    fix   text;
BEGIN
    FOREACH fix IN ARRAY coalesce(fixes, '{}') LOOP
        EXECUTE fix;
    END LOOP;
    fixes := (SELECT pg_catalog.array_agg(p.fix) FROM fencing.privilege_faults() p);
    FOREACH fix IN ARRAY coalesce(fixes, '{}') LOOP
        EXECUTE fix;
    END LOOP;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
DO $$
BEGIN
    PERFORM pg_catalog.set_config('search_path', pg_catalog.current_setting('fencing.search_path'), true);
END $$;
-- +goose StatementEnd

-- +goose Down

-- As above: names mean PostgreSQL's own until the end of the file.
-- +goose StatementBegin
DO $$
BEGIN
    PERFORM pg_catalog.set_config('fencing.search_path', pg_catalog.current_setting('search_path'), true);
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
END $$;
-- +goose StatementEnd

DROP FUNCTION fencing.version();
DROP FUNCTION fencing.revoke_from(regrole);
DROP FUNCTION fencing.grant_to(regrole);
DROP FUNCTION fencing.privilege_faults();
DROP FUNCTION fencing.objects();
DROP FUNCTION fencing.rebase();
DROP FUNCTION fencing.stamp(text, bigint, interval);
DROP FUNCTION fencing.stamped(text);
DROP FUNCTION fencing.issue_after(text, bigint);
DROP FUNCTION fencing.issue(text);
DROP FUNCTION fencing.issue_first(text, text, bigint);
DROP FUNCTION fencing.token_of_new_epoch(bigint);
DROP TABLE fencing.origin;
DROP TABLE fencing.known_resource;
DROP TABLE fencing.resource;
DROP FUNCTION fencing.make_durable();
DROP FUNCTION fencing.system_identifier();
DROP FUNCTION fencing.notes();
DROP FUNCTION fencing.epoch_source();
DROP FUNCTION fencing.epoch();
DROP FUNCTION fencing.chosen_epoch();
DROP FUNCTION fencing.choose_epoch_source();
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

-- +goose StatementBegin
DO $$
BEGIN
    PERFORM pg_catalog.set_config('search_path', pg_catalog.current_setting('fencing.search_path'), true);
END $$;
-- +goose StatementEnd
