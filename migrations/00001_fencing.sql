-- +goose Up

-- The schema itself is made before the first migration, because the table that
-- records the migrations is in it.

CREATE SEQUENCE fencing.token AS bigint
    MINVALUE 1 MAXVALUE 8796093022207 NO CYCLE CACHE 1;
COMMENT ON SEQUENCE fencing.token IS
    'Low 43 bits of the tokens; fencing.issue puts the timeline above them. No table owns it, so that RESTART IDENTITY can''t reach it.';

CREATE TABLE fencing.resource (
    name      text        PRIMARY KEY CHECK (name <> ''),
    mark      bigint      NOT NULL CHECK (mark > 0),
    raised_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 50);
COMMENT ON TABLE fencing.resource IS
    'The mark of a resource is the token that was issued for it last. A write with any other token is refused.';

-- +goose StatementBegin
CREATE FUNCTION fencing.issue(resource text) RETURNS bigint
LANGUAGE plpgsql VOLATILE STRICT SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '200ms'
AS $$
DECLARE
    lock_key bigint := hashtextextended(resource, 0);
    token    bigint;
BEGIN
    IF resource = '' THEN
        RAISE EXCEPTION 'the name of a resource can''t be empty' USING ERRCODE = '22023';
    END IF;
    -- Nobody may supersede a holder without its lock: the lock is granted once
    -- more to the session that has it, and to no other while one has it.
    IF NOT pg_try_advisory_lock(lock_key) THEN
        RAISE EXCEPTION 'another session holds the lock of resource %', to_json(resource) USING
            ERRCODE = '55006',
            HINT = format('Take it first: SELECT CASE WHEN pg_try_advisory_lock(%s) THEN fencing.issue(%L) END.', lock_key, resource);
    END IF;
    PERFORM pg_advisory_unlock(lock_key);

    -- The timeline grows with each promotion, so that a standby that lost the
    -- last tokens does not issue them again.
    token := ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint - 1;
    token := token << 43 | nextval('fencing.token');

    -- A token is worth nothing before its mark is durable, whatever the role
    -- is set to otherwise.
    IF current_setting('synchronous_commit') NOT IN ('on', 'remote_apply') THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;

    BEGIN
        -- Waits for the open transactions in which an earlier holder writes:
        -- they hold the mark FOR SHARE. Above the old mark the token heals a
        -- sequence that was set back.
        INSERT INTO fencing.resource AS r (name, mark) VALUES (resource, token)
        ON CONFLICT (name) DO UPDATE
            SET mark = greatest(excluded.mark, r.mark + 1), raised_at = clock_timestamp()
        RETURNING mark INTO token;
    EXCEPTION WHEN lock_not_available THEN
        RETURN 0;
    END;
    RETURN token;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.issue(text) IS
    'Draws the next token of a resource for the session that holds its advisory lock, and raises the mark. 0: a transaction of an earlier holder is still open; call again. Call it outside of a transaction block: the mark is raised when it commits.';

-- +goose StatementBegin
CREATE FUNCTION fencing.stamp(resource text, token bigint, max_idle interval DEFAULT '1 minute') RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    idle_limit bigint := extract(epoch FROM current_setting('idle_in_transaction_session_timeout')::interval) * 1000;
    max_idle_ms bigint := extract(epoch FROM max_idle) * 1000;
BEGIN
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
    PERFORM set_config('fencing.stamps',
        (coalesce(nullif(current_setting('fencing.stamps', true), ''), '{}')::jsonb
            || jsonb_build_object(resource, token))::text, true);
    -- The next holder waits for the writes of this transaction.
    IF idle_limit = 0 OR idle_limit > max_idle_ms THEN
        PERFORM set_config('idle_in_transaction_session_timeout', max_idle_ms::text, true);
    END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.stamp(text, bigint, interval) IS
    'Lets this transaction write to what is guarded for the resource, as the holder of the token. Until it ends it may be idle for max_idle at most.';

-- +goose StatementBegin
CREATE FUNCTION fencing.check_statement() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    resource text := tg_argv[0];
    token    bigint := (nullif(current_setting('fencing.stamps', true), '')::jsonb ->> resource)::bigint;
    mark     bigint;
BEGIN
    IF token IS NULL THEN
        RAISE EXCEPTION '% on %.% refused: the transaction is not stamped', tg_op, quote_ident(tg_table_schema), quote_ident(tg_table_name) USING
            ERRCODE = 'LF002', SCHEMA = tg_table_schema, TABLE = tg_table_name,
            DETAIL = format('resource=%s', to_json(resource)),
            HINT = format('Hold the resource''s lock and begin the transaction with SELECT fencing.stamp(%L, token).', resource);
    END IF;
    -- FOR SHARE until the end of the transaction: a new holder can't raise the
    -- mark between this check and the commit, and a snapshot that is older than
    -- the mark fails to serialize. No weaker lock gives both.
    SELECT r.mark INTO mark FROM fencing.resource r WHERE r.name = resource FOR SHARE;
    IF mark IS NULL OR token > mark THEN
        RAISE EXCEPTION '% on %.% refused: the token was never issued', tg_op, quote_ident(tg_table_schema), quote_ident(tg_table_name) USING
            ERRCODE = 'LF003', SCHEMA = tg_table_schema, TABLE = tg_table_name,
            DETAIL = format('token=%s current=%s resource=%s', token, coalesce(mark, 0), to_json(resource)),
            HINT = 'Stamp with the token that fencing.issue returned when the lock was granted.';
    ELSIF token < mark THEN
        RAISE EXCEPTION '% on %.% refused: the token is stale', tg_op, quote_ident(tg_table_schema), quote_ident(tg_table_name) USING
            ERRCODE = 'LF001', SCHEMA = tg_table_schema, TABLE = tg_table_name,
            DETAIL = format('token=%s current=%s resource=%s table=%s', token, mark, to_json(resource),
                to_json(format('%I.%I', tg_table_schema, tg_table_name))),
            HINT = 'The lock was lost and another holder has it or had it since. Give up this work, or take the lock again for a new token.';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencing.guard(target regclass, resource text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kind     "char";
    persists "char";
    kin      boolean;
    guarded  text;
BEGIN
    IF target IS NULL THEN
        RAISE EXCEPTION 'the table can''t be NULL' USING ERRCODE = '22023';
    END IF;
    IF resource IS NULL OR resource = '' THEN
        RAISE EXCEPTION 'the name of a resource can''t be empty' USING ERRCODE = '22023';
    END IF;
    SELECT c.relkind, c.relpersistence,
           EXISTS (SELECT FROM pg_inherits i WHERE c.oid IN (i.inhrelid, i.inhparent))
      INTO kind, persists, kin FROM pg_class c WHERE c.oid = target;
    IF kind <> 'r' OR kin THEN
        RAISE EXCEPTION '% can''t be guarded: it is not a plain table', target USING
            ERRCODE = '42809',
            DETAIL = 'Views, foreign tables, partitioned tables, partitions and tables that inherit or are inherited from can''t be guarded.';
    END IF;
    IF persists <> 'p' THEN
        RAISE EXCEPTION '% can''t be guarded: it is temporary or unlogged', target USING
            ERRCODE = '42809',
            DETAIL = 'A crash empties an unlogged table, whoever holds the lock.';
    END IF;

    -- The arguments of a trigger end in a zero byte each.
    SELECT convert_from(substring(t.tgargs FOR length(t.tgargs) - 1), getdatabaseencoding())
      INTO guarded FROM pg_trigger t WHERE t.tgrelid = target AND t.tgname = 'fencing_guard';
    IF guarded = resource THEN
        RETURN;
    ELSIF guarded IS NOT NULL THEN
        RAISE EXCEPTION '% is guarded for resource % already', target, to_json(guarded) USING
            ERRCODE = '55000',
            HINT = format('Remove that guard first: SELECT fencing.unguard(%L).', target);
    END IF;

    EXECUTE format('CREATE TRIGGER fencing_guard BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON %s'
        ' FOR EACH STATEMENT EXECUTE FUNCTION fencing.check_statement(%L)', target, resource);
    -- Also where session_replication_role turns ordinary triggers off.
    EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER fencing_guard', target);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.guard(regclass, text) IS
    'From now on only transactions that are stamped with the current token of the resource write to the table. To be called by its owner.';

-- +goose StatementBegin
CREATE FUNCTION fencing.unguard(target regclass) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF target IS NULL THEN
        RAISE EXCEPTION 'the table can''t be NULL' USING ERRCODE = '22023';
    END IF;
    IF NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = target AND t.tgname = 'fencing_guard') THEN
        RAISE EXCEPTION '% is not guarded', target USING ERRCODE = '55000';
    END IF;
    EXECUTE format('DROP TRIGGER fencing_guard ON %s', target);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.unguard(regclass) IS
    'Lets everybody with the privilege write to the table again. To be called by its owner.';

-- +goose StatementBegin
CREATE FUNCTION fencing.grant_to(role regrole) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF role IS NULL THEN
        RAISE EXCEPTION 'the role can''t be NULL' USING ERRCODE = '22023';
    END IF;
    EXECUTE format('GRANT USAGE ON SCHEMA fencing TO %s', role);
    EXECUTE format('GRANT EXECUTE ON FUNCTION fencing.issue(text), fencing.stamp(text, bigint, interval) TO %s', role);
    EXECUTE format('GRANT SELECT ON fencing.resource TO %s', role);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.grant_to(regrole) IS
    'Gives a role all that it needs to lock resources and to stamp its transactions, and nothing by which it could move a mark otherwise.';

REVOKE ALL ON FUNCTION fencing.issue(text), fencing.stamp(text, bigint, interval) FROM PUBLIC;

-- +goose Down

-- +goose StatementBegin
DO $$
DECLARE
    guarded text;
    others  text;
BEGIN
    SELECT string_agg(t.tgrelid::regclass::text, ', ' ORDER BY t.tgrelid::regclass::text) INTO guarded
      FROM pg_trigger t WHERE t.tgfoid = 'fencing.check_statement()'::regprocedure;
    IF guarded IS NOT NULL THEN
        RAISE EXCEPTION 'fencing can''t be removed: it guards %', guarded USING
            ERRCODE = '2BP01',
            HINT = 'Remove the guards first, each with SELECT fencing.unguard(table).';
    END IF;
    -- Before the marks are gone, not after: will the schema be empty then?
    SELECT string_agg(pg_describe_object(d.classid, d.objid, 0), ', ' ORDER BY d.classid, d.objid) INTO others
      FROM pg_depend d
     WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = 'fencing'::regnamespace AND d.deptype = 'n'
       AND NOT (d.classid = 'pg_class'::regclass AND d.objid IN (
           'fencing.resource'::regclass, 'fencing.token'::regclass, 'fencing.migration'::regclass,
           coalesce(pg_get_serial_sequence('fencing.migration', 'id')::regclass, 0)))
       AND NOT (d.classid = 'pg_proc'::regclass AND d.objid IN (
           'fencing.issue(text)'::regprocedure, 'fencing.stamp(text, bigint, interval)'::regprocedure,
           'fencing.check_statement()'::regprocedure, 'fencing.guard(regclass, text)'::regprocedure,
           'fencing.unguard(regclass)'::regprocedure, 'fencing.grant_to(regrole)'::regprocedure));
    IF others IS NOT NULL THEN
        RAISE EXCEPTION 'fencing can''t be removed: its schema also holds %', others USING
            ERRCODE = '2BP01',
            HINT = 'Move or drop these first.';
    END IF;
END $$;
-- +goose StatementEnd
DROP FUNCTION fencing.grant_to(regrole);
DROP FUNCTION fencing.unguard(regclass);
DROP FUNCTION fencing.guard(regclass, text);
DROP FUNCTION fencing.check_statement();
DROP FUNCTION fencing.stamp(text, bigint, interval);
DROP FUNCTION fencing.issue(text);
DROP TABLE fencing.resource;
DROP SEQUENCE fencing.token;
