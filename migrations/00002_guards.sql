-- +goose Up

-- As in the first migration: names mean PostgreSQL's own until the end of the file.
-- +goose StatementBegin
DO $$
BEGIN
    PERFORM pg_catalog.set_config('fencing.search_path', pg_catalog.current_setting('search_path'), true);
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
END $$;
-- +goose StatementEnd

-- What another role adds to the schema would be that role's.
-- +goose StatementBegin
DO $$
DECLARE
    schema_owner name := (SELECT pg_get_userbyid(n.nspowner) FROM pg_namespace n WHERE n.nspname = 'fencing');
BEGIN
    IF current_setting('search_path') <> 'pg_catalog, pg_temp' THEN
        RAISE EXCEPTION 'run the whole file in one transaction' USING ERRCODE = '25001';
    END IF;
    IF schema_owner <> current_user THEN
        RAISE EXCEPTION 'the schema fencing belongs to role %', quote_ident(schema_owner) USING
            ERRCODE = '42501',
            HINT = 'Run the migrations as that role.';
    END IF;
END $$;
-- +goose StatementEnd

CREATE TABLE fencing.guarded (
    target     regclass    PRIMARY KEY,
    name       text        NOT NULL, -- as it was when it was guarded last
    resource   text        CHECK (resource <> ''),
    by_column  name,
    prefix     text        NOT NULL DEFAULT '',
    guarded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((resource IS NULL) <> (by_column IS NULL))
);
COMMENT ON TABLE fencing.guarded IS
    'The tables that fencing.guard and fencing.guard_by have guarded, each with all of its partitions or children. fencing.verify() compares it with the triggers that are there.';

-- What logical replication applies was written, and checked, where it comes
-- from. pg_stat_activity hides the type of a backend from other roles. Where the
-- subscriptions can't be seen, nothing counts as applied.
-- +goose StatementBegin
CREATE FUNCTION fencing.is_applied() RETURNS boolean
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN current_setting('session_replication_role') = 'replica'
        AND EXISTS (SELECT FROM pg_stat_get_subscription(NULL) s WHERE s.pid = pg_backend_pid());
EXCEPTION WHEN feature_not_supported OR object_not_in_prerequisite_state OR insufficient_privilege OR undefined_function THEN
    RETURN false;
END $$;
-- +goose StatementEnd

-- Whether the writer may be told the current token. A role that can only write to
-- the table could otherwise learn it from a refusal, and use it. The role is that of
-- the session, because the functions that check run as the owner of the schema.
-- +goose StatementBegin
CREATE FUNCTION fencing.may_know() RETURNS boolean
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM pg_roles r
        WHERE r.rolname = coalesce(nullif(current_setting('role'), 'none'), session_user) AND has_schema_privilege(r.oid, 'fencing', 'USAGE'))
$$;
-- +goose StatementEnd

-- Takes the lock that keeps a new holder from raising the mark until the end of the
-- transaction. What a block with an EXCEPTION clause locks belongs to the
-- transaction. Otherwise it would be the cursor's whose FETCH writes, and a cursor
-- that fails gives it back while an earlier FETCH's rows stay.
-- +goose StatementBegin
CREATE FUNCTION fencing.share_writing(resources text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    resource text;
BEGIN
    FOREACH resource IN ARRAY resources LOOP
        PERFORM pg_advisory_xact_lock_shared(hashtextextended(resource COLLATE "C", 1));
    END LOOP;
EXCEPTION WHEN SQLSTATE 'LF000' THEN -- never
    RAISE;
END $$;
-- +goose StatementEnd

-- The check itself. It runs with the rights and the search_path of the trigger
-- functions below.
-- +goose StatementBegin
CREATE FUNCTION fencing.check_write(resource text, operation text, table_schema name, table_name name) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    target     text    := format('%I.%I', table_schema, table_name);
    token      bigint  := fencing.stamped(resource);
    now_epoch  text    := fencing.epoch();
    is_fresh   boolean := current_setting('transaction_isolation') IN ('read committed', 'read uncommitted');
    last       record; -- the mark
    is_changed boolean; -- was the server promoted or the database rebased since the installation?
    is_past    boolean;
    current    text;
BEGIN
    IF token IS NULL THEN
        IF fencing.is_applied() THEN
            RETURN;
        END IF;
        RAISE EXCEPTION '% on % refused: the transaction is not stamped for resource %', operation, target, to_json(resource) USING
            ERRCODE = 'LF002', SCHEMA = table_schema, TABLE = table_name,
            DETAIL = format('resource=%s', to_json(resource)),
            HINT = format('Hold the resource''s lock and begin the transaction with SELECT fencing.stamp(%L, token).', resource);
    END IF;
    PERFORM fencing.share_writing(ARRAY[resource]);
    IF is_fresh THEN
        -- This statement sees what was committed before the lock was granted.
        SELECT r.mark, r.epoch INTO last FROM ONLY fencing.resource r WHERE r.name = resource COLLATE "C" ORDER BY r.mark DESC LIMIT 1;
    ELSE
        -- A snapshot that is older than the mark fails to serialize here. No
        -- weaker row lock does that.
        SELECT r.mark, r.epoch INTO last FROM ONLY fencing.resource r WHERE r.name = resource COLLATE "C" ORDER BY r.mark DESC LIMIT 1 FOR SHARE;
    END IF;
    IF token = last.mark AND last.epoch = now_epoch THEN
        RETURN;
    END IF;

    is_changed := NOT EXISTS (SELECT FROM fencing.origin o WHERE o.epoch = now_epoch);
    -- A snapshot that is older than the first mark does not see it, and there is no
    -- row to serialize with. Was the token issued since? Not if the sequence has not
    -- come so far, nor, where numbers are taken from the clock, if it is too low.
    IF last.mark IS NULL AND NOT is_fresh AND token > 0 AND (CASE WHEN is_changed THEN token > fencing.token_of_new_epoch(0) - (1::bigint << 37)
        ELSE token <= (SELECT s.last_value FROM fencing.token s) END)
    THEN
        RAISE EXCEPTION '% on % refused: this transaction sees no token of resource %', operation, target, to_json(resource) USING
            ERRCODE = '40001', SCHEMA = table_schema, TABLE = table_name,
            DETAIL = format('token=%s resource=%s', token, to_json(resource)),
            HINT = 'If the token was issued after the transaction began, begin anew. If not, it is none of this resource.';
    END IF;
    -- The locks of before a promotion are gone, and of the holders of then a
    -- standby that lost the last marks can't tell who was superseded.
    is_past := token > 0 AND CASE WHEN last.mark IS NULL OR token > last.mark THEN is_changed ELSE last.epoch <> now_epoch END;
    IF fencing.may_know() THEN
        current := coalesce(last.mark, 0)::text;
    END IF;
    -- To whom the mark is not told, all are stale: else it could be found by trying.
    IF NOT is_past AND (last.mark IS NULL OR token > last.mark) AND current IS NOT NULL THEN
        RAISE EXCEPTION '% on % refused: token % was never issued for resource %', operation, target, token, to_json(resource) USING
            ERRCODE = 'LF003', SCHEMA = table_schema, TABLE = table_name,
            DETAIL = concat_ws(' ', 'token=' || token, 'current=' || current, 'resource=' || to_json(resource)),
            HINT = 'Stamp with the token that fencing.issue returned when the lock was granted.';
    END IF;
    RAISE EXCEPTION '% on % refused: token % of resource % is stale%', operation, target, token, to_json(resource), coalesce(', the current one is ' || current, '') USING
        ERRCODE = 'LF001', SCHEMA = table_schema, TABLE = table_name,
        DETAIL = concat_ws(' ', 'token=' || token, 'current=' || current, 'resource=' || to_json(resource), 'table=' || to_json(target)),
        HINT = CASE WHEN current IS NULL THEN 'It is not the current token.'
            WHEN is_past AND token >= coalesce(last.mark, 0) THEN 'The lock was lost when the server was promoted or the database restored.'
            ELSE 'The lock was lost and another holder has it or had it since.' END || ' Give up this work, or take the lock again for a new token.';
END $$;
-- +goose StatementEnd

-- Whether fencing.check_write allows a write for the resource, in most cases for less.
-- The lock is that of fencing.share_writing.
-- +goose StatementBegin
CREATE FUNCTION fencing.is_current(resource text) RETURNS boolean
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    resource_name text COLLATE "C" := resource;
    -- As fencing.stamped has it.
    token         bigint := nullif(split_part(split_part(left(split_part(current_setting('fencing.stamps', true), E'\n' || to_json(resource) || ':', 2), 20), ',', 1), '}', 1), '');
    locked        boolean; -- an assignment costs less than PERFORM
BEGIN
    IF token IS NOT NULL AND current_setting('transaction_isolation') = 'read committed' THEN
        BEGIN
            locked := pg_advisory_xact_lock_shared(hashtextextended(resource_name, 1)) IS NULL;
            PERFORM FROM ONLY fencing.resource r WHERE r.name = resource_name AND r.mark = token AND r.epoch = fencing.chosen_epoch();
            RETURN found;
        EXCEPTION WHEN feature_not_supported OR object_not_in_prerequisite_state OR insufficient_privilege OR undefined_function THEN
            NULL; -- the epoch has another source by now
        END;
    END IF;
    RETURN false;
END $$;
-- +goose StatementEnd

-- It is paid for by every statement, so it has what fencing.is_current has, without the
-- call.
-- +goose StatementBegin
CREATE FUNCTION fencing.check_statement() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    resource_name text COLLATE "C" := tg_argv[0];
    token         bigint := nullif(split_part(split_part(left(split_part(current_setting('fencing.stamps', true), E'\n' || to_json(tg_argv[0]) || ':', 2), 20), ',', 1), '}', 1), '');
    locked        boolean;
BEGIN
    IF token IS NOT NULL AND current_setting('transaction_isolation') = 'read committed' THEN
        BEGIN
            locked := pg_advisory_xact_lock_shared(hashtextextended(resource_name, 1)) IS NULL;
            PERFORM FROM ONLY fencing.resource r WHERE r.name = resource_name AND r.mark = token AND r.epoch = fencing.chosen_epoch();
            IF found THEN
                RETURN NULL;
            END IF;
        EXCEPTION WHEN feature_not_supported OR object_not_in_prerequisite_state OR insufficient_privilege OR undefined_function THEN
            NULL; -- the epoch has another source by now
        END;
    END IF;
    PERFORM fencing.check_write(tg_argv[0], tg_op, tg_table_schema, tg_table_name);
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- Checks the resources that values of a column name; a value may be NULL for none. What
-- fencing.check_write allows is allowed here in most cases, for all of them at once.
-- +goose StatementBegin
CREATE FUNCTION fencing.check_values(vals text[], by_column text, prefix text, operation text, table_schema name, table_name name) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    -- In order, so that who waits for one keeps nobody waiting for an earlier one.
    resources text[] := ARRAY(SELECT DISTINCT (prefix || v.value) COLLATE "C" AS name FROM unnest(vals) AS v (value) WHERE prefix || v.value <> '' ORDER BY name);
    written   text := current_setting('fencing.stamps', true);
    stamps    jsonb := nullif(written, '')::jsonb;
    resource  text;
    is_passed boolean := false;
BEGIN
    -- Not with a lock for each name of an import that is not stamped at all.
    IF current_setting('transaction_isolation') = 'read committed'
        AND NOT EXISTS (SELECT FROM unnest(resources) AS n (name) WHERE stamps ->> n.name IS NULL)
    THEN
        PERFORM fencing.share_writing(resources);
        BEGIN
            -- Not as another NOT EXISTS: that could be planned to read all marks.
            -- The stamp is found as fencing.stamp_row finds it, also among several for one
            -- resource that were set by hand.
            is_passed := NOT EXISTS (SELECT FROM unnest(resources) AS n (name) WHERE (
                SELECT true FROM ONLY fencing.resource r WHERE r.name = n.name COLLATE "C"
                    AND r.mark = coalesce(nullif(split_part(split_part(left(split_part(written, E'\n' || to_json(n.name) || ':', 2), 20), ',', 1), '}', 1), ''), stamps ->> n.name)::bigint
                    AND r.epoch = fencing.chosen_epoch()) IS NULL);
        EXCEPTION WHEN feature_not_supported OR object_not_in_prerequisite_state OR insufficient_privilege OR undefined_function THEN
            NULL; -- the epoch has another source by now
        END;
    END IF;
    IF NOT is_passed THEN
        FOREACH resource IN ARRAY resources LOOP
            PERFORM fencing.check_write(resource, operation, table_schema, table_name);
        END LOOP;
    END IF;
    IF EXISTS (SELECT FROM unnest(vals) AS v (value) WHERE (prefix || v.value <> '') IS NOT TRUE) AND NOT fencing.is_applied() THEN
        RAISE EXCEPTION '% on %.% refused: a row names no resource', operation, quote_ident(table_schema), quote_ident(table_name) USING
            ERRCODE = 'LF002', SCHEMA = table_schema, TABLE = table_name, COLUMN = by_column,
            HINT = format('Give %I a value: it names the resource whose holder may write the row.', by_column);
    END IF;
END $$;
-- +goose StatementEnd

-- Checks one row. A partition that is attached later has no statement triggers
-- yet, but it gets its row triggers from the table that it is attached to.
-- +goose StatementBegin
CREATE FUNCTION fencing.check_row() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM fencing.check_write(tg_argv[0], tg_op, tg_table_schema, tg_table_name);
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- A column names the resource: its checker takes the values of the rows of a statement,
-- or of one row. There is one for each name of a column, since SQL that is put together
-- for each statement costs ten times as much as the check. All tables with a column of
-- that name share it; PL/pgSQL plans it for each trigger, and anew after each change to
-- the table. fencing.guard_by makes it where it is missing. What is not used any more
-- stays, and is in nobody's way.
-- +goose StatementBegin
CREATE FUNCTION fencing.checker(by_column text) RETURNS name
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ('check_by_' || md5(by_column))::name
$$;
-- +goose StatementEnd

-- The body of a checker. It runs with the rights of the schema's owner, so that it calls
-- nothing but PostgreSQL's own functions, whatever becomes of the column. A value is no
-- cast to text, which could be somebody's function. The column has no table before it,
-- since what is no column any more would be taken for a function of the row, unless a
-- variable or a table has its name. And only where it is a text are its values told
-- apart as they are: equal values of other types may be different texts.
-- +goose StatementBegin
CREATE FUNCTION fencing.checker_body(by_column text) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    quoted text := '"' || replace(by_column, '"', '""') || '"';
    of_row text := $body$CASE WHEN %1$s IS NOT NULL THEN format('%%s', %1$s) END$body$;
    values text := '';
    side   text;
    ref    text;
BEGIN
    FOREACH side IN ARRAY ARRAY['old', 'new'] LOOP
        ref := CASE WHEN by_column ~ '^(tg_.*|old|new|found|sqlstate|sqlerrm|fencing_.*)$' THEN 'fencing_' || side || '.' ELSE '' END || quoted;
        values := values || format($body$
            IF tg_op <> %1$L THEN
                fencing_rows := ARRAY(SELECT %3$s FROM fencing_%2$s LIMIT 2);
                IF cardinality(fencing_rows) > 1 THEN
                    IF pg_typeof((SELECT %4$s FROM fencing_%2$s LIMIT 1)) IN ('text'::regtype, 'varchar'::regtype) THEN
                        fencing_rows := ARRAY(SELECT %5$s FROM (SELECT DISTINCT %4$s COLLATE "C" AS value FROM fencing_%2$s) d);
                    ELSE
                        fencing_rows := ARRAY(SELECT DISTINCT %3$s COLLATE "C" FROM fencing_%2$s);
                    END IF;
                END IF;
                fencing_values := fencing_values || fencing_rows;
            END IF;$body$,
            CASE side WHEN 'old' THEN 'INSERT' ELSE 'DELETE' END, side, format(of_row, ref), ref, format(of_row, 'd.value'));
    END LOOP;
    RETURN format($body$
#variable_conflict use_column
DECLARE
    fencing_values text[] := '{}';
    fencing_rows   text[];
BEGIN
    BEGIN
        IF tg_level = 'ROW' THEN
            IF tg_op <> 'INSERT' THEN
                fencing_values := fencing_values || %1$s;
            END IF;
            IF tg_op <> 'DELETE' THEN
                fencing_values := fencing_values || %2$s;
            END IF;
        ELSE
            IF pg_my_temp_schema() <> 0 THEN
                PERFORM fencing.refuse_shadows(tg_op, tg_table_schema, tg_table_name);
            END IF;%3$s
        END IF;
    EXCEPTION WHEN undefined_column THEN
        PERFORM fencing.refuse_column(tg_relid, tg_argv[0]);
    END;
    IF cardinality(fencing_values) > 0 AND ((cardinality(fencing_values) = 1
        OR cardinality(fencing_values) = 2 AND fencing_values[1] COLLATE "C" = fencing_values[2])
        AND fencing.is_current(tg_argv[1] || fencing_values[1])) IS NOT TRUE
    THEN
        PERFORM fencing.check_values(fencing_values, tg_argv[0], tg_argv[1], tg_op, tg_table_schema, tg_table_name);
    END IF;
    IF tg_when = 'BEFORE' THEN
        RETURN new;
    END IF;
    RETURN NULL;
END
$body$, format(of_row, 'old.' || quoted), format(of_row, 'new.' || quoted), values);
END $$;
-- +goose StatementEnd

-- Of a trigger without transition tables, a view of the session's own would be read in
-- their place, with the rights of the checker.
-- +goose StatementBegin
CREATE FUNCTION fencing.refuse_shadows(operation text, table_schema name, table_name name) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    IF to_regclass('pg_temp.fencing_old') IS NOT NULL OR to_regclass('pg_temp.fencing_new') IS NOT NULL THEN
        RAISE EXCEPTION '% on %.% refused: the session has a temporary fencing_old or fencing_new', operation, quote_ident(table_schema), quote_ident(table_name) USING
            ERRCODE = '42710',
            HINT = 'Drop it, or give it another name.';
    END IF;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencing.refuse_column(target regclass, by_column text) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
BEGIN
    RAISE EXCEPTION '% has no column %', target, quote_ident(by_column) USING
        ERRCODE = '42703',
        HINT = format('It is guarded by that column. Give it its name back, or SELECT fencing.unguard(%L) and guard the table by another.', target);
END $$;
-- +goose StatementEnd

-- Which functions are checkers, or have the name of one, and whether they are as
-- fencing.make_checker makes them. The column is read from the body, of which the rest
-- has to be right.
-- +goose StatementBegin
CREATE FUNCTION fencing.checkers() RETURNS TABLE (object oid, name text, by_column text, is_whole boolean)
LANGUAGE sql STABLE ROWS 5
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
AS $$
    SELECT p.oid, p.oid::regprocedure::text, c.by_column,
        coalesce(p.proname = fencing.checker(c.by_column) AND p.prosrc = fencing.checker_body(c.by_column), false)
            AND l.lanname = 'plpgsql' AND p.prokind = 'f' AND p.prosecdef AND p.provolatile = 'v' AND NOT p.proisstrict AND NOT p.proretset
            AND p.prorettype = 'trigger'::regtype AND coalesce(array_to_string(p.proconfig, ' '), '') IN ('search_path=pg_catalog, pg_temp', 'search_path="pg_catalog", "pg_temp"')
        FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang,
        LATERAL (SELECT replace(substring(p.prosrc FROM 'WHEN old\."((?:[^"]|"")+)" IS NOT NULL'), '""', '"')) c (by_column)
        WHERE p.pronamespace = 'fencing'::regnamespace AND p.proname ~ '^check_by_[0-9a-f]{32}$' AND p.pronargs = 0
$$;
-- +goose StatementEnd

-- Makes the checker of a column, or mends it: whoever owns a table may not create
-- anything in this schema.
-- +goose StatementBegin
CREATE FUNCTION fencing.make_checker(by_column name) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
AS $$
DECLARE
    signature text := format('fencing.%I()', fencing.checker(by_column));
    role      text;
BEGIN
    IF EXISTS (SELECT FROM fencing.checkers() c WHERE c.by_column = make_checker.by_column AND c.is_whole) THEN
        RETURN;
    END IF;
    EXECUTE format('CREATE OR REPLACE FUNCTION %s RETURNS trigger LANGUAGE plpgsql VOLATILE CALLED ON NULL INPUT SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L',
        signature, fencing.checker_body(by_column));
    -- Whatever default privileges say.
    FOR role IN SELECT DISTINCT e.grantee::regrole::text FROM pg_proc p, aclexplode(p.proacl) e
        WHERE p.oid = signature::regprocedure AND e.grantee NOT IN (0, p.proowner)
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM %s CASCADE', signature, role);
    END LOOP;
    EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO PUBLIC', signature);
EXCEPTION WHEN unique_violation THEN
    NULL; -- another session has made it
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencing.refuse_truncate() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF fencing.is_applied() THEN
        RETURN NULL;
    END IF;
    RAISE EXCEPTION 'TRUNCATE on %.% refused: it takes the rows of every resource', quote_ident(tg_table_schema), quote_ident(tg_table_name) USING
        ERRCODE = 'LF002', SCHEMA = tg_table_schema, TABLE = tg_table_name,
        HINT = 'Delete the rows of the resources that the transaction is stamped for.';
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencing.stamp_row() RETURNS trigger
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    resource text := tg_argv[0];
    stamps   text := current_setting('fencing.stamps', true);
    token    text;
BEGIN
    IF tg_nargs = 2 THEN
        -- As fencing.text_of has it, which the writer may not be allowed to call.
        EXECUTE format('SELECT $2 || format(''%%s'', ($1).%I)', tg_argv[0])
            USING new, tg_argv[1] INTO resource;
    END IF;
    -- As fencing.stamped has it. Without a stamp, as in logical replication, the row
    -- stays as it came.
    token := split_part(split_part(left(split_part(stamps, E'\n' || to_json(resource) || ':', 2), 20), ',', 1), '}', 1);
    IF token = '' THEN
        token := nullif(stamps, '')::jsonb ->> resource;
    END IF;
    new.fencing_token := coalesce(token::bigint, new.fencing_token);
    RETURN new;
END $$;
-- +goose StatementEnd

-- A table and all of its partitions, or of the tables that inherit from it. A
-- session's temporary children are its own business.
-- +goose StatementBegin
CREATE FUNCTION fencing.family(target regclass) RETURNS TABLE (member regclass, depth int)
LANGUAGE sql STABLE ROWS 5
SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE f (oid, depth) AS (
        SELECT target::oid, 0
        UNION
        SELECT i.inhrelid, f.depth + 1 FROM f JOIN pg_inherits i ON i.inhparent = f.oid
            JOIN pg_class c ON c.oid = i.inhrelid AND c.relpersistence <> 't'
    )
    SELECT f.oid::regclass, max(f.depth) FROM f GROUP BY f.oid
$$;
-- +goose StatementEnd

-- Which triggers make a guard whole, and in which state, as pg_get_triggerdef
-- and pg_trigger have them. fencing.guard makes them, fencing.verify looks for
-- them. A table is guarded with all that is below it.
--
-- A partition gets the row triggers of its partitioned table. Where it has
-- statement triggers, those would check a second time, and are disabled; what is
-- attached later has them enabled. pg_dump knows in which order to restore that
-- only if the state differs from level to level: so partitioned partitions have
-- theirs enabled in two halves, of which the second fires in the role replica.
--
-- zz_fencing_move is for rows that go to another partition, since no transition
-- table has them if it is MERGE that moves them. It sees what a trigger that fires
-- before it has made of the row. One that fires after it may move the row as well,
-- or change whose it is, and so may one that fires when the row arrives: where
-- there is such a trigger, each row is checked.
--
-- zz_fencing_token always fires; its condition is there to keep the column from
-- being dropped under it.
--
-- fencing_unguard_first never fires. That it is there keeps PostgreSQL from
-- attaching the table to a parent, by way of which it would be written unchecked.
--
-- How pg_get_triggerdef writes a text and a name, two settings decide.
--
-- It is planned once for each session. As a function in SQL it was planned at each
-- of the seven calls that one fencing.guard leads to.
-- +goose StatementBegin
CREATE FUNCTION fencing.wanted(target regclass, resource text, by_column name, prefix text)
RETURNS TABLE (member regclass, depth int, cloned boolean, name name, state "char", definition text)
LANGUAGE plpgsql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET quote_all_identifiers = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH argument (checker, list) AS (
        SELECT quote_ident(CASE WHEN by_column IS NULL THEN 'check_row' ELSE fencing.checker(by_column) END), string_agg('''' || replace(a.text, '''', '''''') || '''', ', ' ORDER BY a.number)
            FROM unnest(CASE WHEN by_column IS NULL THEN ARRAY[resource] ELSE ARRAY[by_column::text, prefix] END)
            WITH ORDINALITY AS a (text, number)
    ), member AS (
        SELECT f.member AS oid, f.depth, f.depth = 0 AS is_root, c.relkind = 'r' AS is_leaf, c.relispartition AS is_partition,
            EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'fencing_token' AND NOT a.attisdropped
                AND a.atttypid = 'bigint'::regtype AND a.attgenerated = '') AS is_stamped
        FROM fencing.family(target) f JOIN pg_class c ON c.oid = f.member
    ), keys (old, new, has_token) AS (
        SELECT string_agg('old.' || quote_ident(a.attname), ', ' ORDER BY a.attnum),
            string_agg('new.' || quote_ident(a.attname), ', ' ORDER BY a.attnum),
            coalesce(bool_or(a.attname = 'fencing_token'), false)
        FROM pg_attribute a
        WHERE a.attrelid = target AND a.attname IN (
            SELECT k.attname FROM member m JOIN pg_depend d ON d.objid = m.oid AND d.refobjid = m.oid AND d.objsubid > 0 AND d.refobjsubid = 0
            JOIN pg_attribute k ON k.attrelid = m.oid AND k.attnum = d.objsubid
            WHERE NOT m.is_leaf AND d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'i')
    ), watch (each_row) AS (
        -- 19 is before each row's UPDATE, 7 before each row's INSERT.
        SELECT by_column IS NOT NULL AND current_setting('server_version_num')::int >= 150000 AND (keys.has_token OR EXISTS (
            SELECT FROM member m JOIN pg_trigger t ON t.tgrelid = m.oid JOIN pg_proc p ON p.oid = t.tgfoid
            WHERE NOT t.tgisinternal AND p.pronamespace <> 'fencing'::regnamespace
            AND (t.tgtype & 19 = 19 AND t.tgname > 'zz_fencing_move' OR t.tgtype & 7 = 7)))
        FROM keys
    ), w (oid, depth, cloned, name, state, event, action) AS (
        SELECT oid, depth, false, 'fencing_guard', 'A', 'BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE',
            'FOR EACH STATEMENT EXECUTE FUNCTION fencing.check_statement(' || list || ')'
            FROM member, argument WHERE by_column IS NULL
        UNION ALL
        SELECT oid, depth, false, 'fencing_guard_' || lower(t.event), 'A', 'AFTER ' || t.event,
            'REFERENCING ' || t.rows || ' FOR EACH STATEMENT EXECUTE FUNCTION fencing.' || checker || '(' || list || ')'
            FROM member, argument, (VALUES
                ('INSERT', 'NEW TABLE AS fencing_new'),
                ('UPDATE', 'OLD TABLE AS fencing_old NEW TABLE AS fencing_new'),
                ('DELETE', 'OLD TABLE AS fencing_old')) t (event, rows)
            WHERE by_column IS NOT NULL
        UNION ALL
        SELECT oid, depth, false, 'fencing_guard_truncate', 'A', 'BEFORE TRUNCATE',
            'FOR EACH STATEMENT EXECUTE FUNCTION fencing.refuse_truncate()'
            FROM member WHERE by_column IS NOT NULL
        UNION ALL
        SELECT oid, depth, is_partition, 'fencing_guard_row',
            CASE WHEN is_leaf AND NOT each_row THEN 'D' WHEN is_leaf OR depth % 2 = 0 THEN 'A' ELSE 'O' END,
            'AFTER INSERT OR DELETE OR UPDATE', 'FOR EACH ROW EXECUTE FUNCTION fencing.' || checker || '(' || list || ')'
            FROM member, argument, watch WHERE is_partition OR NOT is_leaf
        UNION ALL
        SELECT oid, depth, depth > 1, 'fencing_guard_row_replica', CASE WHEN is_leaf OR depth % 2 = 0 THEN 'D' ELSE 'R' END,
            'AFTER INSERT OR DELETE OR UPDATE', 'FOR EACH ROW EXECUTE FUNCTION fencing.' || checker || '(' || list || ')'
            FROM member, argument WHERE is_partition AND depth > 0 AND (depth > 1 OR NOT is_leaf)
        UNION ALL
        SELECT oid, depth, is_partition, 'zz_fencing_move', 'A', 'BEFORE UPDATE',
            'FOR EACH ROW WHEN (record_image_ne(ROW(' || keys.old || '), ROW(' || keys.new || '))) EXECUTE FUNCTION fencing.' || argument.checker || '(' || argument.list || ')'
            FROM member, argument, keys WHERE by_column IS NOT NULL AND keys.old IS NOT NULL AND (is_partition OR NOT is_leaf)
        UNION ALL
        SELECT oid, depth, is_partition, 'zz_fencing_token', 'A', 'BEFORE INSERT OR UPDATE',
            'FOR EACH ROW WHEN (((new.fencing_token IS NULL) IS NOT NULL)) EXECUTE FUNCTION fencing.stamp_row(' || list || ')'
            FROM member, argument WHERE is_stamped
        UNION ALL
        SELECT oid, depth, false, 'fencing_unguard_first', 'A', 'AFTER DELETE',
            'REFERENCING OLD TABLE AS fencing_old FOR EACH ROW WHEN (false) EXECUTE FUNCTION fencing.' || checker || '(' || list || ')'
            FROM member, argument WHERE is_root AND is_leaf
    )
    SELECT w.oid, w.depth, w.cloned, w.name::name, w.state::"char",
        'CREATE TRIGGER ' || w.name || ' ' || w.event || ' ON ' || w.oid || ' ' || w.action
    FROM w ORDER BY w.depth, w.oid::text, w.name;
END $$;
-- +goose StatementEnd

-- The triggers of this schema on a table, without those that belong to the
-- table that it is a partition of.
-- +goose StatementBegin
CREATE FUNCTION fencing.triggers(member regclass) RETURNS SETOF pg_catalog.pg_trigger
LANGUAGE sql STABLE ROWS 5
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT t.* FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
     WHERE t.tgrelid = member AND p.pronamespace = 'fencing'::regnamespace AND t.tgparentid = 0
$$;
-- +goose StatementEnd

-- For what a trigger was made, from its arguments: those of fencing.guard have one,
-- those of fencing.guard_by two.
-- +goose StatementBegin
CREATE FUNCTION fencing.arguments(trigger oid) RETURNS text[]
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE t.tgnargs
        WHEN 1 THEN ARRAY[convert_from(substring(t.tgargs FOR octet_length(t.tgargs) - 1), getdatabaseencoding())]
        WHEN 2 THEN ARRAY[convert_from(substring(t.tgargs FOR e.first - 1), getdatabaseencoding()),
            convert_from(substring(t.tgargs FROM e.first + 1 FOR octet_length(t.tgargs) - e.first - 1), getdatabaseencoding())]
        END
        FROM pg_trigger t, position(decode('00', 'hex') IN t.tgargs) e (first) WHERE t.oid = trigger
$$;
-- +goose StatementEnd

-- Which triggers of a guard are there. One that differs is another trigger of
-- that name; one that is own calls a function of this schema. Those of this schema
-- that are not wanted have no state to be in.
-- +goose StatementBegin
CREATE FUNCTION fencing.compare(target regclass, resource text, by_column name, prefix text)
RETURNS TABLE (member regclass, depth int, name name, state "char", definition text, found oid, found_state "char", differs boolean, is_own boolean)
LANGUAGE plpgsql STABLE ROWS 10
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET quote_all_identifiers = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    WITH w AS MATERIALIZED (SELECT * FROM fencing.wanted(target, resource, by_column, prefix))
    SELECT w.member, w.depth, w.name, w.state, w.definition, t.oid, t.tgenabled,
        pg_get_triggerdef(t.oid) <> w.definition AND t.tgparentid = 0, p.pronamespace = 'fencing'::regnamespace
        FROM w LEFT JOIN pg_trigger t ON t.tgrelid = w.member AND t.tgname = w.name LEFT JOIN pg_proc p ON p.oid = t.tgfoid
    UNION ALL
    SELECT f.member, f.depth, t.tgname, NULL, NULL, t.oid, t.tgenabled, true, true
        FROM fencing.family(target) f, fencing.triggers(f.member) t
        WHERE NOT EXISTS (SELECT FROM w WHERE w.member = f.member AND w.name = t.tgname);
END $$;
-- +goose StatementEnd

-- Why a table can't be guarded by a column; NULL if it can. The text of other
-- types depends on settings of the session, or is not the same for equal values.
-- +goose StatementBegin
CREATE FUNCTION fencing.unfit(target regclass, by_column name) RETURNS text
LANGUAGE sql STABLE STRICT
SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE col AS (
        SELECT a.atttypid, a.atttypmod, a.attgenerated FROM pg_attribute a
        WHERE a.attrelid = target AND a.attname = by_column AND a.attnum > 0 AND NOT a.attisdropped
    ), type (oid, base, category, kind) AS (
        SELECT t.oid, t.typbasetype, t.typcategory, t.typtype FROM col JOIN pg_type t ON t.oid = col.atttypid
        UNION ALL
        SELECT t.oid, t.typbasetype, t.typcategory, t.typtype FROM type JOIN pg_type t ON t.oid = type.base
    )
    SELECT CASE
        WHEN NOT EXISTS (SELECT FROM col) THEN format('has no column %I: every write is refused', by_column)
        WHEN EXISTS (SELECT FROM col WHERE attgenerated <> '') THEN format('can''t be guarded by its column %I: it is generated', by_column)
        WHEN NOT EXISTS (SELECT FROM type WHERE kind <> 'd' AND oid <> 'bpchar'::regtype
            AND (category IN ('S', 'E', 'B') OR oid IN ('smallint'::regtype, 'int'::regtype, 'bigint'::regtype, 'uuid'::regtype)))
        THEN format('can''t be guarded by its column %I: its type is %s', by_column, (SELECT format_type(atttypid, atttypmod) FROM col))
        END
$$;
-- +goose StatementEnd

-- What of a guard is not as it should be, and the statements that make it whole: NULL
-- where somebody has to decide. Names are quoted in them, and nothing is a comment.
-- +goose StatementBegin
CREATE FUNCTION fencing.faults(target regclass, resource text, by_column name, prefix text)
RETURNS TABLE (problem text, fix text)
LANGUAGE sql STABLE ROWS 1
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET quote_all_identifiers = off
AS $$
    WITH member AS (
        SELECT f.member AS oid, f.depth, c.relkind AS kind, c.relispartition AS is_partition, c.relpersistence AS persistence
        FROM fencing.family(target) f JOIN pg_class c ON c.oid = f.member
    ), compared AS MATERIALIZED (
        SELECT c.*, c.depth > 0 AND NOT EXISTS (SELECT FROM fencing.triggers(c.member)) AS is_new
        FROM fencing.compare(target, resource, by_column, prefix) c
    ), decision (problem) AS (
        SELECT format('%s is a foreign table: what is written where it comes from is not checked; detach it', m.oid::regclass)
            FROM member m WHERE m.kind NOT IN ('r', 'p')
        UNION ALL
        SELECT format('%s belongs to %s: what is written by way of it is not checked; ', m.oid::regclass, i.inhparent::regclass)
                || CASE WHEN m.depth = 0 THEN 'remove the guard, and guard the whole' ELSE 'take it out of there' END
            FROM member m JOIN pg_inherits i ON i.inhrelid = m.oid WHERE i.inhparent NOT IN (SELECT o.oid FROM member o)
        UNION ALL
        SELECT format('%s %s; give the column its name and type back, or remove the guard and guard the table by another', target, u)
            FROM fencing.unfit(target, by_column) u WHERE u IS NOT NULL
        UNION ALL
        SELECT format('the column fencing_token of %s is not a bigint, or is generated: rows are not stamped; give it another name', m.oid::regclass)
            FROM member m JOIN pg_attribute a ON a.attrelid = m.oid
            WHERE a.attname = 'fencing_token' AND NOT a.attisdropped AND (a.atttypid <> 'bigint'::regtype OR a.attgenerated <> '')
    ), call (guard) AS (
        SELECT CASE WHEN EXISTS (SELECT FROM decision) THEN NULL -- it would be refused
            WHEN by_column IS NULL THEN format('SELECT fencing.guard(%L, %L)', target, resource)
            ELSE format('SELECT fencing.guard_by(%L, %L, %L)', target, by_column, prefix) END
    )
    SELECT d.problem, NULL FROM decision d
    UNION ALL
    SELECT CASE WHEN m.is_partition
            THEN format('%s was attached later: a TRUNCATE of it is not checked, and its rows are checked one by one', m.oid::regclass)
            ELSE format('%s became a child later: what is written to it directly is not checked', m.oid::regclass) END, call.guard
        FROM member m, call WHERE m.kind IN ('r', 'p') AND m.oid IN (SELECT c.member FROM compared c WHERE c.is_new)
    UNION ALL
    SELECT format('trigger %I of %s ', c.name, c.member) || CASE
            WHEN c.found IS NULL THEN 'is missing'
            WHEN c.definition IS NULL THEN 'does not belong there'
            WHEN c.differs THEN 'is not the one that belongs there'
            WHEN c.state = 'D' THEN 'checks each row a second time'
            WHEN c.found_state = 'D' THEN 'is disabled'
            WHEN c.found_state = 'A' THEN 'checks each row a second time where session_replication_role is replica'
            WHEN c.found_state = 'R' THEN 'fires only where session_replication_role is replica'
            ELSE 'does not fire where session_replication_role is replica' END,
            -- What is somebody else's and has that name, guard does not remove.
            CASE WHEN c.differs AND NOT c.is_own THEN (SELECT string_agg(format('DROP TRIGGER IF EXISTS %I ON %s; ', o.name, o.member), '' ORDER BY o.depth, o.name)
                FROM compared o WHERE o.differs AND NOT o.is_own)
            ELSE '' END || call.guard
        FROM compared c, call WHERE NOT c.is_new AND (c.found IS NULL OR c.found_state <> c.state OR c.differs)
    UNION ALL
    SELECT format('trigger %I of %s fires after zz_fencing_token, and may change the column fencing_token: give it a name that comes before', t.tgname, m.oid::regclass), NULL
        FROM member m JOIN pg_trigger t ON t.tgrelid = m.oid JOIN pg_proc p ON p.oid = t.tgfoid
        WHERE t.tgtype & 3 = 3 AND t.tgtype & 20 <> 0 AND t.tgname > 'zz_fencing_token' AND t.tgparentid = 0 AND NOT t.tgisinternal
        AND p.pronamespace <> 'fencing'::regnamespace
        AND EXISTS (SELECT FROM compared c WHERE c.member = m.oid AND c.name = 'zz_fencing_token' AND c.definition IS NOT NULL)
    UNION ALL
    SELECT format('%s is unlogged: a crash empties it, whoever holds the lock', m.oid::regclass), format('ALTER TABLE %s SET LOGGED', m.oid::regclass)
        FROM member m WHERE m.persistence = 'u'
$$;
-- +goose StatementEnd

-- Makes a guard whole, and removes what it has no more use for. Another guard it
-- leaves alone.
-- +goose StatementBegin
CREATE FUNCTION fencing.complete(target regclass, resource text, by_column name, prefix text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET quote_all_identifiers = off
AS $$
DECLARE
    for_what    text[] := CASE WHEN by_column IS NULL THEN ARRAY[resource] ELSE ARRAY[by_column::text, prefix] END;
    is_recorded boolean;
    w           record;
BEGIN
    -- Before the table is locked, since another session may be making it, and take long.
    IF by_column IS NOT NULL THEN
        PERFORM fencing.make_checker(by_column);
    END IF;
    EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', target);
    -- Somebody else may have guarded it meanwhile.
    is_recorded := EXISTS (SELECT FROM fencing.guarded g WHERE g.target = complete.target
        AND (g.resource, g.by_column, g.prefix) IS NOT DISTINCT FROM (complete.resource, complete.by_column, complete.prefix));
    -- What DROP TRIGGER takes: one at a time could deadlock.
    IF EXISTS (SELECT FROM fencing.compare(target, resource, by_column, prefix) c WHERE c.differs) THEN
        EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', target);
    END IF;
    FOR w IN SELECT c.* FROM fencing.compare(target, resource, by_column, prefix) c WHERE c.differs ORDER BY c.depth LOOP
        IF NOT w.is_own OR NOT is_recorded AND fencing.arguments(w.found) IS DISTINCT FROM for_what THEN
            RAISE EXCEPTION '% has another trigger % already', w.member, quote_ident(w.name) USING
                ERRCODE = '55000',
                DETAIL = pg_get_triggerdef(w.found),
                HINT = CASE WHEN w.is_own THEN format('Remove the other guard first: SELECT fencing.unguard(%L).', w.member)
                    ELSE format('Remove it first: DROP TRIGGER %I ON %s.', w.name, w.member) END;
        END IF;
        EXECUTE format('DROP TRIGGER %I ON %s', w.name, w.member);
    END LOOP;
    -- All of them first, and their states afterwards: fencing.on_ddl, which ALTER
    -- TABLE calls, has nothing to complete then.
    FOR w IN SELECT c.* FROM fencing.compare(target, resource, by_column, prefix) c ORDER BY c.depth, c.member::text, c.name LOOP
        -- It may have come with that of the table above.
        IF NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = w.member AND t.tgname = w.name) THEN
            EXECUTE w.definition;
        END IF;
    END LOOP;
    FOR w IN SELECT c.* FROM fencing.compare(target, resource, by_column, prefix) c ORDER BY c.depth, c.member::text, c.name LOOP
        -- Of a partitioned table it sets those of the partitions too, which come later.
        IF (SELECT t.tgenabled FROM pg_trigger t WHERE t.tgrelid = w.member AND t.tgname = w.name) <> w.state THEN
            EXECUTE format('ALTER TABLE %s %s TRIGGER %I', w.member, CASE w.state WHEN 'D' THEN 'DISABLE' WHEN 'O' THEN 'ENABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END, w.name);
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd

-- Which tables are guarded is recorded with the rights of the owner of the schema,
-- for whoever calls it: not who that is decides, since that may be a function of
-- somebody else, but what only the owner of the table can have done to it. Only the
-- owner can set in which role a trigger fires. A guard is recorded that is there and
-- always fires, and forgotten where fencing.unguard has left its trigger.
-- +goose StatementBegin
CREATE FUNCTION fencing.record(target regclass, resource text, by_column name, prefix text, is_guarded boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET quote_all_identifiers = off
AS $$
BEGIN
    IF is_guarded IS NOT TRUE THEN
        IF NOT EXISTS (SELECT FROM fencing.triggers(target)) OR EXISTS (
            SELECT FROM fencing.triggers(target) t WHERE t.tgname <> 'fencing_unguarded' OR t.tgenabled <> 'R')
        THEN
            RAISE EXCEPTION 'must be owner of table %', target USING ERRCODE = '42501',
                HINT = format('Call SELECT fencing.unguard(%L).', target);
        END IF;
        DELETE FROM fencing.guarded g WHERE g.target = record.target;
        RETURN;
    END IF;
    -- What is recorded already stays unlocked: whoever calls this could keep its owner waiting.
    IF EXISTS (SELECT FROM fencing.guarded g JOIN pg_class c ON c.oid = g.target JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE g.target = record.target AND g.name = format('%I.%I', n.nspname, c.relname)
        AND (g.resource, g.by_column, g.prefix) IS NOT DISTINCT FROM (record.resource, record.by_column, record.prefix))
    THEN
        RETURN;
    END IF;
    -- A prefix is no argument of the triggers of fencing.guard, nor a resource of those of fencing.guard_by.
    IF (CASE WHEN by_column IS NULL THEN prefix <> '' ELSE resource IS NOT NULL END) IS NOT FALSE
        OR NOT EXISTS (SELECT FROM fencing.compare(target, resource, by_column, prefix))
        OR EXISTS (SELECT FROM fencing.compare(target, resource, by_column, prefix) c WHERE c.found IS NULL OR c.found_state <> c.state OR c.differs)
    THEN
        RAISE EXCEPTION 'must be owner of table %', target USING ERRCODE = '42501',
            HINT = format('Call %s.', CASE WHEN by_column IS NULL THEN format('SELECT fencing.guard(%L, %L)', target, resource)
                ELSE format('SELECT fencing.guard_by(%L, %L, %L)', target, by_column, prefix) END);
    END IF;
    -- It takes the place of a table of this name that is no more.
    DELETE FROM fencing.guarded g USING pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE c.oid = record.target AND parse_ident(g.name) = ARRAY[n.nspname, c.relname]::text[] AND NOT EXISTS (SELECT FROM pg_class o WHERE o.oid = g.target);
    INSERT INTO fencing.guarded AS g (target, name, resource, by_column, prefix)
    SELECT c.oid, format('%I.%I', n.nspname, c.relname), record.resource, record.by_column, record.prefix
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = record.target
    ON CONFLICT ON CONSTRAINT guarded_pkey DO UPDATE
        SET name = excluded.name, resource = excluded.resource, by_column = excluded.by_column, prefix = excluded.prefix;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencing.start(target regclass, resource text, by_column name, prefix text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parent  regclass := (SELECT i.inhparent FROM pg_inherits i WHERE i.inhrelid = target ORDER BY i.inhseqno LIMIT 1);
    other   record;
    guarded record;
BEGIN
    IF parent IS NOT NULL THEN
        RAISE EXCEPTION '% can''t be guarded alone: it belongs to %', target, parent USING
            ERRCODE = '42809',
            HINT = format('Guard %s: that guards all of its partitions and children.', parent);
    END IF;
    SELECT f.member AS name, c.relkind AS kind, c.relpersistence AS persistence INTO other
      FROM fencing.family(target) f JOIN pg_class c ON c.oid = f.member
     WHERE c.relkind NOT IN ('r', 'p') OR c.relpersistence <> 'p' LIMIT 1;
    IF other.kind NOT IN ('r', 'p') THEN
        RAISE EXCEPTION '% can''t be guarded: % is not a table of this database', target, other.name USING
            ERRCODE = '42809',
            DETAIL = 'Tables and partitioned tables can be guarded; views and foreign tables can''t.',
            HINT = 'Guard the tables that a view reads from: what is written through it is checked there.';
    ELSIF other.kind IS NOT NULL THEN
        RAISE EXCEPTION '% can''t be guarded: % is temporary or unlogged', target, other.name USING
            ERRCODE = '42809',
            DETAIL = 'A crash empties an unlogged table, whoever holds the lock.';
    END IF;
    SELECT f.member AS name, i.inhparent::regclass AS parent INTO other
      FROM fencing.family(target) f JOIN pg_inherits i ON i.inhrelid = f.member
     WHERE i.inhparent NOT IN (SELECT o.member FROM fencing.family(target) o) LIMIT 1;
    IF other.name IS NOT NULL THEN
        RAISE EXCEPTION '% can''t be guarded: % belongs to % as well', target, other.name, other.parent USING
            ERRCODE = '42809',
            DETAIL = format('What is written by way of %s would not be checked.', other.parent);
    END IF;
    SELECT a.attrelid::regclass AS name INTO other
      FROM fencing.family(target) f JOIN pg_attribute a ON a.attrelid = f.member
     WHERE a.attname = 'fencing_token' AND NOT a.attisdropped AND (a.atttypid <> 'bigint'::regtype OR a.attgenerated <> '') LIMIT 1;
    IF other.name IS NOT NULL THEN
        RAISE EXCEPTION '% can''t be guarded: the column fencing_token of % is not a bigint', target, other.name USING
            ERRCODE = '42804',
            HINT = 'Rows are stamped with their token in a column of that name. Make it a bigint, or give it another name.';
    END IF;

    SELECT g.* INTO guarded FROM fencing.guarded g WHERE g.target = start.target;
    IF (guarded.resource, guarded.by_column, guarded.prefix) IS DISTINCT FROM (resource, by_column, prefix) AND guarded.target IS NOT NULL THEN
        RAISE EXCEPTION '%', CASE WHEN guarded.by_column IS NULL
                THEN format('%s is guarded for resource %s already', target, to_json(guarded.resource))
                ELSE format('%s is guarded by its column %I already', target, guarded.by_column) END USING
            ERRCODE = '55000',
            HINT = format('Remove that guard first: SELECT fencing.unguard(%L).', target);
    END IF;
    IF guarded.target IS NULL OR guarded.name <> (
        SELECT format('%I.%I', n.nspname, c.relname) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = start.target) OR EXISTS (SELECT FROM fencing.faults(target, resource, by_column, prefix)) THEN
        PERFORM fencing.complete(target, resource, by_column, prefix);
        PERFORM fencing.record(target, resource, by_column, prefix, true);
    END IF;
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencing.guard(target regclass, resource text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF target IS NULL THEN
        RAISE EXCEPTION 'the table can''t be NULL' USING ERRCODE = '22023';
    END IF;
    IF resource IS NULL OR resource = '' THEN
        RAISE EXCEPTION 'the name of a resource can''t be empty' USING ERRCODE = '22023';
    END IF;
    PERFORM fencing.start(target, resource, NULL, '');
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.guard(regclass, text) IS
    'From now on only transactions that are stamped with the current token of the resource write to the table, its partitions and its children. Call it again after one was added. To be called by the owner of the table.';

-- +goose StatementBegin
CREATE FUNCTION fencing.guard_by(target regclass, by_column name, prefix text DEFAULT '') RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    problem text;
BEGIN
    IF target IS NULL OR by_column IS NULL OR prefix IS NULL THEN
        RAISE EXCEPTION 'the table, the column and the prefix can''t be NULL' USING ERRCODE = '22023';
    END IF;
    problem := fencing.unfit(target, by_column);
    IF problem LIKE 'has no column%' THEN
        RAISE EXCEPTION '% has no column %', target, quote_ident(by_column) USING ERRCODE = '42703';
    ELSIF problem IS NOT NULL THEN
        RAISE EXCEPTION '% %', target, problem USING
            ERRCODE = '42804',
            HINT = 'The column must be text or varchar, an integer, a boolean, an enum or uuid, and not generated, so that each value is one name of a resource.';
    END IF;
    PERFORM fencing.start(target, NULL, by_column, prefix);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.guard_by(regclass, name, text) IS
    'From now on only transactions that are stamped with the current token of the resource that a row names write that row: prefix and the value of the column are the name. Otherwise as fencing.guard.';

-- +goose StatementBegin
CREATE FUNCTION fencing.unguard(target regclass) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    t record;
BEGIN
    IF target IS NULL THEN
        RAISE EXCEPTION 'the table can''t be NULL' USING ERRCODE = '22023';
    END IF;
    -- What DROP TRIGGER takes: to lock less first could deadlock.
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', target);
    IF NOT EXISTS (SELECT FROM fencing.guarded g WHERE g.target = unguard.target) AND NOT EXISTS (SELECT FROM fencing.triggers(target)) THEN
        RAISE EXCEPTION '% is not guarded', target USING ERRCODE = '55000';
    END IF;
    SELECT g.target AS name INTO t FROM fencing.guarded g WHERE g.target <> unguard.target
        AND unguard.target IN (SELECT f.member FROM fencing.family(g.target) f) LIMIT 1;
    IF t.name IS NOT NULL THEN
        RAISE EXCEPTION '% is guarded with %', target, t.name USING
            ERRCODE = '55000',
            HINT = format('Remove the guard of all of it, SELECT fencing.unguard(%L), or detach %s first.', t.name, target);
    END IF;
    FOR t IN SELECT f.member, g.tgname AS name FROM fencing.family(target) f, fencing.triggers(f.member) g ORDER BY f.depth LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', t.name, t.member);
    END LOOP;
    IF EXISTS (SELECT FROM fencing.guarded g WHERE g.target = unguard.target) THEN
        -- Shows fencing.record that the owner wants it.
        EXECUTE format('CREATE TRIGGER fencing_unguarded AFTER DELETE ON %s FOR EACH STATEMENT EXECUTE FUNCTION fencing.refuse_truncate()', target);
        EXECUTE format('ALTER TABLE %s ENABLE REPLICA TRIGGER fencing_unguarded', target);
        PERFORM fencing.record(target, NULL, NULL, NULL, false);
        EXECUTE format('DROP TRIGGER fencing_unguarded ON %s', target);
    END IF;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.unguard(regclass) IS
    'Lets everybody with the privilege write to the table again, and to its partitions and children. To be called by the owner of the table.';

-- The functions and tables of the schema, in a form in which another version of
-- PostgreSQL, another tool and another session have them too. Of a table only what
-- decides is told: columns, and the names of keys and checks.
-- +goose StatementBegin
CREATE FUNCTION fencing.present() RETURNS TABLE (kind text, name text, spelled text, body text, settings text[])
LANGUAGE sql STABLE ROWS 40
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
AS $$
    SELECT 'function', p.oid::regprocedure::text, a.name,
        -- fencing.choose_epoch_source writes one of these two, later too.
        md5(concat_ws(' ', l.lanname, CASE WHEN p.proname = 'chosen_epoch' AND p.prosrc IN (
                'SELECT pg_catalog.left(pg_catalog.pg_walfile_name(''0/1''::pg_catalog.pg_lsn), 8)', 'SELECT ''constant''::pg_catalog.text')
            THEN '' ELSE p.prosrc END, p.provolatile::text, p.proisstrict::text, p.proretset::text, format_type(p.prorettype, NULL), p.prokind::text)),
        -- In a session that quotes all names, this setting is another text.
        ARRAY[CASE WHEN p.prosecdef THEN 'SECURITY DEFINER' ELSE 'SECURITY INVOKER' END]
            || (SELECT array_agg(CASE o.setting WHEN 'search_path="pg_catalog", "pg_temp"' THEN 'search_path=pg_catalog, pg_temp' ELSE o.setting END
                ORDER BY o.setting COLLATE "C") FROM unnest(p.proconfig) o (setting))
        FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang JOIN fencing.objects() a ON a.class = 'pg_proc'::regclass AND a.object = p.oid
        WHERE p.proname <> 'installed' AND NOT EXISTS (SELECT FROM fencing.checkers() c WHERE c.object = p.oid)
    UNION ALL
    SELECT 'table', c.oid::regclass::text, NULL,
        md5((SELECT string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull::text, a.atthasdef::text, a.attcollation::regcollation::text), ', ' ORDER BY a.attname)
            FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
            || coalesce((SELECT string_agg(k.conname || k.contype::text || k.convalidated::text, ', ' ORDER BY k.conname)
            FROM pg_constraint k WHERE k.conrelid = c.oid AND k.contype IN ('c', 'p', 'u', 'x')), '')),
        NULL
        FROM pg_class c WHERE c.relnamespace = 'fencing'::regnamespace AND c.relkind = 'r' AND c.relname <> 'migration'
$$;
-- +goose StatementEnd

-- The commands by which a table can get a parent, or a trigger.
-- +goose StatementBegin
CREATE FUNCTION fencing.tags() RETURNS text[]
LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ARRAY['CREATE TABLE', 'ALTER TABLE', 'CREATE FOREIGN TABLE', 'ALTER FOREIGN TABLE', 'IMPORT FOREIGN SCHEMA',
        'CREATE SCHEMA', 'CREATE TRIGGER', 'ALTER TRIGGER']
$$;
-- +goose StatementEnd

-- What fencing.present was at the installation: the end of this migration knows.
-- +goose StatementBegin
CREATE FUNCTION fencing.installed() RETURNS jsonb
LANGUAGE sql IMMUTABLE
AS 'SELECT NULL::jsonb';
-- +goose StatementEnd

-- What of the functions, tables and event triggers that all guards share is not as
-- it was installed. Privileges are the business of fencing.privilege_faults.
-- +goose StatementBegin
CREATE FUNCTION fencing.installation_faults() RETURNS TABLE (problem text, fix text)
LANGUAGE sql STABLE ROWS 1
SET search_path = pg_catalog, pg_temp
SET quote_all_identifiers = off
AS $$
    WITH was (kind, name, body, settings) AS MATERIALIZED (
        SELECT w.kind, w.name, w.body, w.settings FROM jsonb_to_recordset(fencing.installed()) AS w (kind text, name text, body text, settings text[])
    ), is_now AS MATERIALIZED (
        SELECT * FROM fencing.present()
    )
    SELECT CASE WHEN i.name IS NULL THEN format('the %s %s is missing', w.kind, w.name)
            WHEN w.name IS NULL THEN format('the %s %s does not belong to fencing, and may be called in place of one that does', i.kind, i.name)
            WHEN w.kind = 'function' THEN format('the function %s is not the one that was installed', w.name)
            ELSE format('the %s %s has other columns or constraints than those it was installed with', w.kind, w.name) END
            || '; bring it back, as from a fresh installation', NULL
        FROM was w FULL JOIN is_now i ON i.kind = w.kind AND i.name = w.name
        -- A table more is in nobody's way.
        WHERE w.body IS DISTINCT FROM i.body AND NOT (w.name IS NULL AND i.kind = 'table')
    UNION ALL
    SELECT format('the function %s is not the one that fencing.guard_by makes', c.name), coalesce(g.fix, format('DROP FUNCTION %s', c.name))
        FROM fencing.checkers() c LEFT JOIN LATERAL (
            SELECT format('SELECT fencing.make_checker(%L)', g.by_column) FROM fencing.guarded g
            WHERE c.name = format('fencing.%s()', fencing.checker(g.by_column)) LIMIT 1
        ) g (fix) ON true
        WHERE NOT c.is_whole
    UNION ALL
    SELECT format('the function %s lost its settings', w.name),
        format('ALTER FUNCTION %1$s RESET ALL; ALTER FUNCTION %1$s %2$s', i.spelled, w.settings[1])
            || coalesce((SELECT string_agg(CASE split_part(o.setting, '=', 1)
                WHEN 'search_path' THEN ' SET search_path = pg_catalog, pg_temp'
                ELSE format(' SET %I = %L', split_part(o.setting, '=', 1), substring(o.setting FROM position('=' IN o.setting) + 1)) END, '' ORDER BY o.setting)
                FROM unnest(w.settings[2:]) o (setting)), '')
        FROM was w JOIN is_now i ON i.kind = w.kind AND i.name = w.name AND i.body = w.body
        WHERE w.settings <> i.settings
    UNION ALL
    SELECT format('the table %s is not logged: a crash %s', c.oid::regclass, CASE c.relname WHEN 'resource' THEN 'forgets the marks' ELSE 'empties it' END),
        format('ALTER TABLE %s SET LOGGED', c.oid::regclass)
        FROM pg_class c JOIN was w ON w.kind = 'table' AND w.name = c.oid::regclass::text WHERE c.relpersistence <> 'p'
    UNION ALL
    SELECT format('the table %s has triggers, rules or row security: they can change or hide %s', c.oid::regclass, CASE c.relname WHEN 'resource' THEN 'marks' ELSE 'what it has' END),
        concat_ws('; ', CASE WHEN c.relrowsecurity OR c.relforcerowsecurity THEN format('ALTER TABLE %s DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', c.oid::regclass) END,
            r.rules, t.triggers)
        FROM pg_class c JOIN was w ON w.kind = 'table' AND w.name = c.oid::regclass::text,
        LATERAL (SELECT string_agg(format('DROP RULE %I ON %s', r.rulename, c.oid::regclass), '; ' ORDER BY r.rulename) FROM pg_rewrite r WHERE r.ev_class = c.oid) r (rules),
        LATERAL (SELECT string_agg(format('DROP TRIGGER %I ON %s', t.tgname, c.oid::regclass), '; ' ORDER BY t.tgname)
            FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND NOT (c.relname = 'resource' AND t.tgname = 'make_durable')) t (triggers)
        WHERE c.relrowsecurity OR c.relforcerowsecurity OR r.rules IS NOT NULL OR t.triggers IS NOT NULL
    UNION ALL
    SELECT format('the event trigger %I does not see all that adds to a guarded table, or is disabled', e.evtname),
        format('DROP EVENT TRIGGER %1$I; CREATE EVENT TRIGGER %1$I ON ddl_command_end WHEN TAG IN (%2$s) EXECUTE FUNCTION fencing.on_ddl()',
            e.evtname, (SELECT string_agg(quote_literal(tag), ', ') FROM unnest(fencing.tags()) tag))
        FROM pg_event_trigger e
        WHERE e.evtfoid = to_regprocedure('fencing.on_ddl()')
        AND (e.evtenabled NOT IN ('O', 'A') OR e.evtevent <> 'ddl_command_end' OR NOT coalesce(e.evttags @> fencing.tags(), true))
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencing.verify()
RETURNS TABLE (target text, resource text, by_column text, prefix text, problem text, fix text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET quote_all_identifiers = off
AS $$
    -- A name with a line break in it is not to look like another line of the report.
    SELECT v.target, v.resource, v.by_column, v.prefix, regexp_replace(v.problem, '[\u0001-\u001f\u007f]', '?', 'g'), v.fix FROM (
    SELECT g.target::text, g.resource, g.by_column, g.prefix, f.problem, f.fix
        FROM fencing.guarded g JOIN pg_class c ON c.oid = g.target
        LEFT JOIN LATERAL fencing.faults(g.target, g.resource, g.by_column, g.prefix) f ON true
    UNION ALL
    SELECT g.name, g.resource, g.by_column, g.prefix, 'is another table than the one that was guarded under this name',
        CASE WHEN g.by_column IS NULL THEN format('SELECT fencing.guard(%L, %L)', g.name, g.resource)
            ELSE format('SELECT fencing.guard_by(%L, %L, %L)', g.name, g.by_column, g.prefix) END
        FROM fencing.guarded g JOIN pg_class c ON c.relname = (parse_ident(g.name))[2] AND c.oid <> g.target AND c.relkind IN ('r', 'p')
        JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = (parse_ident(g.name))[1]
        WHERE NOT EXISTS (SELECT FROM fencing.guarded o, fencing.family(o.target) f WHERE f.member = c.oid)
    UNION ALL
    -- Under which name it was made again nothing tells, if it was renamed before.
    SELECT g.name, g.resource, g.by_column, g.prefix, format('was guarded under this name and is no more: guard what has taken its place, '
            || 'if anything has; then the owner of the schema removes this: DELETE FROM fencing.guarded WHERE target = %s', g.target::oid), NULL
        FROM fencing.guarded g
        WHERE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = g.target)
        AND NOT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE parse_ident(g.name) = ARRAY[n.nspname, c.relname]::text[])
    UNION ALL
    -- Whoever has made them always fire is the owner, and has wanted this guard.
    SELECT t.relid::regclass::text, NULL, NULL, NULL,
        'has triggers of a guard that is not recorded: it was detached from a guarded table, or comes from another database; guard it, or remove them',
        CASE WHEN t.has_parent THEN NULL
            WHEN cardinality(t.arguments) = 1 THEN format('SELECT fencing.guard(%L, %L)', t.relid::regclass, t.arguments[1])
            WHEN cardinality(t.arguments) = 2 THEN format('SELECT fencing.guard_by(%L, %L, %L)', t.relid::regclass, t.arguments[1], t.arguments[2]) END
        FROM (
            SELECT t.tgrelid AS relid, EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = t.tgrelid) AS has_parent,
                fencing.arguments(min(t.oid) FILTER (WHERE t.tgname IN ('fencing_guard', 'fencing_guard_insert') AND t.tgenabled = 'A')) AS arguments
            FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_class c ON c.oid = t.tgrelid
            WHERE p.pronamespace = 'fencing'::regnamespace AND p.proname <> 'make_durable' AND t.tgparentid = 0 AND c.relpersistence <> 't'
            AND NOT EXISTS (SELECT FROM fencing.guarded g, fencing.family(g.target) f WHERE f.member = t.tgrelid)
            GROUP BY t.tgrelid
        ) t
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, 'the sequence fencing.token does not count one by one, or cycles, or counts too far',
        'ALTER SEQUENCE fencing.token INCREMENT 1 MINVALUE 1 MAXVALUE 9007199254740991 CACHE 1 NO CYCLE'
        FROM pg_sequence s
        WHERE s.seqrelid = 'fencing.token'::regclass
        AND (s.seqincrement, s.seqcache, s.seqcycle, s.seqmin, s.seqmax) IS DISTINCT FROM (1, 1, false, 1, 9007199254740991)
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, 'the sequence fencing.token is not logged: a crash sets it back', 'ALTER SEQUENCE fencing.token SET LOGGED'
        FROM pg_class c WHERE c.oid = 'fencing.token'::regclass AND c.relpersistence <> 'p'
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, format('the sequence fencing.token belongs to %s: RESTART IDENTITY reaches it', d.refobjid::regclass),
        'ALTER SEQUENCE fencing.token OWNED BY NONE'
        FROM pg_depend d
        WHERE d.classid = 'pg_class'::regclass AND d.objid = 'fencing.token'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'a'
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, i.problem, i.fix FROM fencing.installation_faults() i
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, 'the trigger make_durable of fencing.resource is not as it was made: a crash can forget a token that somebody has',
        'DROP TRIGGER IF EXISTS make_durable ON fencing.resource; CREATE CONSTRAINT TRIGGER make_durable AFTER INSERT OR UPDATE ON fencing.resource DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fencing.make_durable(); ALTER TABLE fencing.resource ENABLE ALWAYS TRIGGER make_durable'
        WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = 'fencing.resource'::regclass AND t.tgname = 'make_durable' AND t.tgenabled = 'A'
            AND t.tgfoid = 'fencing.make_durable()'::regprocedure AND t.tgtype = 21 AND t.tgdeferrable AND t.tginitdeferred AND t.tgqual IS NULL AND t.tgattr = ''::int2vector)
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, p.problem, p.fix FROM fencing.privilege_faults() p
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, 'the table fencing.resource has marks that fencing.issue did not set here: they are of another database, or the sequence fencing.token was set back',
        'SELECT fencing.rebase()'
        FROM fencing.origin o
        WHERE EXISTS (SELECT FROM fencing.resource r WHERE r.epoch = fencing.epoch() AND CASE r.epoch
            WHEN o.epoch THEN r.mark > (SELECT s.last_value FROM fencing.token s)
            ELSE r.mark < extract(epoch FROM o.since - timestamptz '2026-01-01 00:00:00+00') * 1000000 END)
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, 'the table fencing.resource has several marks of one resource, of which only the highest should be',
        'DELETE FROM fencing.resource r USING fencing.resource o WHERE o.name = r.name AND o.mark > r.mark'
        WHERE EXISTS (SELECT FROM fencing.resource r GROUP BY r.name HAVING count(*) > 1)
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, 'tokens are above 9007199254740991: a double, as in JavaScript, can''t tell two of them apart', NULL
        WHERE EXISTS (SELECT FROM fencing.resource r WHERE r.mark > 9007199254740991)
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, format('the prepared transaction %s keeps holders of a resource waiting: it wrote to what is guarded, or has drawn a token', to_json(p.gid)), NULL
        FROM pg_prepared_xacts p WHERE p.database = current_database() AND EXISTS (
            SELECT FROM pg_locks x JOIN pg_locks l ON l.virtualtransaction = x.virtualtransaction AND l.pid IS NULL
            WHERE x.locktype = 'transactionid' AND x.transactionid = p.transaction AND x.pid IS NULL AND (l.relation = 'fencing.resource'::regclass AND l.mode = 'RowExclusiveLock'
            OR l.locktype = 'advisory' AND l.objsubid = 1
            AND EXISTS (SELECT FROM fencing.resource r WHERE hashtextextended(r.name, 1) = (l.classid::bigint << 32) | l.objid::bigint)))
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, 'the epoch has another source than at the installation: the server tells its timeline no more, or again', 'SELECT fencing.choose_epoch_source()'
        WHERE fencing.epoch_source() <> CASE WHEN (SELECT p.prosrc FROM pg_proc p WHERE p.oid = 'fencing.chosen_epoch()'::regprocedure) LIKE '%constant%'
            THEN 'constant' ELSE 'timeline' END
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, 'this database is a copy: the original may have issued tokens that are not known here',
        '-- once nothing uses the original any more: SELECT fencing.rebase()'
        FROM pg_database d LEFT JOIN fencing.origin o ON true
        WHERE d.datname = current_database()
        AND (d.oid IS DISTINCT FROM o.database OR fencing.system_identifier() <> o.system_identifier)
    ) v (target, resource, by_column, prefix, problem, fix)
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.verify() IS
    'One row for each guarded table that is whole, with no problem; else one for each problem, with the statements that mend it, or without a fix where somebody has to decide: problem says what. Problems without a table are of the whole installation.';

-- +goose StatementBegin
CREATE FUNCTION fencing.on_ddl() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    altered record;
    root    regclass;
    family  record;
    g       record;
    other   record;
BEGIN
    -- Triggers of this schema are part of a guard, and those of others matter where
    -- fencing.wanted has each row checked because of them.
    FOR altered IN
        SELECT c.objid AS oid, false AS has_trigger FROM pg_event_trigger_ddl_commands() c WHERE c.classid = 'pg_class'::regclass
        UNION
        SELECT t.tgrelid, true FROM pg_event_trigger_ddl_commands() c JOIN pg_trigger t ON t.oid = c.objid JOIN pg_proc p ON p.oid = t.tgfoid
         WHERE c.classid = 'pg_trigger'::regclass AND p.pronamespace <> 'fencing'::regnamespace
           AND (t.tgtype & 19 = 19 AND t.tgname > 'zz_fencing_move' OR t.tgtype & 7 = 7)
    LOOP
        FOR root IN
            WITH RECURSIVE above (oid) AS (
                SELECT altered.oid UNION SELECT i.inhparent FROM above a JOIN pg_inherits i ON i.inhrelid = a.oid
            ) SELECT a.oid::regclass FROM above a WHERE NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = a.oid)
        LOOP
            -- Whoever alters a table may read the catalogs, but perhaps not the
            -- schema.
            WITH RECURSIVE f (oid) AS (
                SELECT root::oid UNION
                SELECT i.inhrelid FROM f JOIN pg_inherits i ON i.inhparent = f.oid JOIN pg_class c ON c.oid = i.inhrelid AND c.relpersistence <> 't'
            ), has (guard, unchecked_rows) AS (
                SELECT bool_or(t.tgparentid = 0 AND t.tgname <> 'fencing_unguarded') IS TRUE,
                    bool_or(t.tgname = 'fencing_guard_row' AND t.tgenabled = 'D') AND bool_or(t.tgname = 'fencing_guard_insert' AND t.tgenabled <> 'D')
                FROM f LEFT JOIN (pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid AND p.pronamespace = 'fencing'::regnamespace) ON t.tgrelid = f.oid
                GROUP BY f.oid
            ) SELECT bool_or(h.guard) AS is_guarded, bool_and(h.guard) AS is_whole, bool_or(h.unchecked_rows) AS has_unchecked_rows INTO family FROM has h;
            CONTINUE WHEN NOT family.is_guarded OR family.is_whole AND NOT (altered.has_trigger AND coalesce(family.has_unchecked_rows, false));

            SELECT m.* INTO g FROM fencing.guarded m WHERE m.target = root;
            IF g.target IS NOT NULL THEN
                SELECT f.member AS name, c.relkind = 'f' AS is_foreign INTO other
                  FROM fencing.family(root) f JOIN pg_class c ON c.oid = f.member
                 WHERE (c.relkind = 'f' OR c.relpersistence = 'u') AND NOT EXISTS (SELECT FROM fencing.triggers(f.member)) LIMIT 1;
                IF other.name IS NOT NULL THEN
                    RAISE EXCEPTION '% is guarded, and % can''t become a part of it', root, other.name USING
                        ERRCODE = '55000',
                        DETAIL = CASE WHEN other.is_foreign THEN 'What is written where a foreign table comes from is not checked.'
                            ELSE 'A crash empties an unlogged table, whoever holds the lock.' END;
                END IF;
                PERFORM fencing.complete(g.target, g.resource, g.by_column, g.prefix);
            END IF;
            SELECT m.target, f.member INTO g FROM fencing.guarded m, fencing.family(m.target) f
             WHERE m.target <> root AND f.member IN (SELECT r.member FROM fencing.family(root) r) ORDER BY f.depth LIMIT 1;
            IF g.target IS NOT NULL THEN
                RAISE EXCEPTION '% is guarded and can''t become a part of %', g.member, root USING
                    ERRCODE = '55000',
                    HINT = format('Remove the guard first, SELECT fencing.unguard(%L), and guard %s afterwards.', g.target, root);
            END IF;
        END LOOP;
    END LOOP;
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.on_ddl() IS
    'For an event trigger, which only a superuser can create: CREATE EVENT TRIGGER fencing ON ddl_command_end WHEN TAG IN (''CREATE TABLE'', ''ALTER TABLE'', ''CREATE FOREIGN TABLE'', ''ALTER FOREIGN TABLE'', ''IMPORT FOREIGN SCHEMA'', ''CREATE SCHEMA'', ''CREATE TRIGGER'', ''ALTER TRIGGER'') EXECUTE FUNCTION fencing.on_ddl(). It guards what becomes a part of a guarded table at once, and has its rows checked one by one where another trigger asks for that.';

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION fencing.version() RETURNS bigint
LANGUAGE sql IMMUTABLE
AS 'SELECT 2::bigint';
-- +goose StatementEnd

-- As the body of a function it is a part of the schema, of which a dump may leave
-- the rows out.
-- +goose StatementBegin
DO $$
BEGIN
    EXECUTE pg_catalog.format('CREATE OR REPLACE FUNCTION fencing.installed() RETURNS pg_catalog.jsonb LANGUAGE sql IMMUTABLE AS %L', pg_catalog.format('SELECT %L::pg_catalog.jsonb',
        (SELECT pg_catalog.jsonb_agg(pg_catalog.to_jsonb(p.*)) FROM fencing.present() p)));
END $$;
-- +goose StatementEnd

-- What default privileges have given away of what is new is taken back, and the
-- roles that may use what was there before get what is new.
-- +goose StatementBegin
DO $$
DECLARE
    fixes text[] := (SELECT pg_catalog.array_agg(DISTINCT pg_catalog.format('REVOKE ALL ON %s %s FROM %s CASCADE', o.kind, o.name,
            CASE e.grantee WHEN 0 THEN 'PUBLIC' ELSE e.grantee::pg_catalog.regrole::pg_catalog.text END))
        FROM fencing.objects() o, pg_catalog.aclexplode(o.acl) e
        WHERE e.grantee <> o.owner AND (o.kind = 'TABLE' OR o.kind = 'FUNCTION' AND e.grantee <> 0)
        AND pg_catalog.split_part(pg_catalog.split_part(o.name, '.', 2), '(', 1) NOT IN (
            'resource', 'known_resource', 'origin', 'migration', 'epoch', 'chosen_epoch', 'epoch_source', 'notes', 'system_identifier', 'make_durable', 'stamped',
            'choose_epoch_source', 'issue_first', 'token_of_new_epoch', 'issue', 'issue_after', 'stamp', 'rebase', 'objects', 'privilege_faults', 'grant_to', 'revoke_from', 'version'));
    roles pg_catalog.oid[] := (SELECT pg_catalog.array_agg(DISTINCT e.grantee) FROM fencing.objects() o, pg_catalog.aclexplode(o.acl) e
        WHERE e.grantee NOT IN (0, o.owner) AND o.object = 'fencing.issue(pg_catalog.text)'::pg_catalog.regprocedure);
    fix   text;
    role  pg_catalog.oid;
BEGIN
    FOREACH fix IN ARRAY coalesce(fixes, '{}') LOOP
        EXECUTE fix;
    END LOOP;
    fixes := (SELECT pg_catalog.array_agg(p.fix) FROM fencing.privilege_faults() p);
    FOREACH fix IN ARRAY coalesce(fixes, '{}') LOOP
        EXECUTE fix;
    END LOOP;
    FOREACH role IN ARRAY coalesce(roles, '{}') LOOP
        PERFORM fencing.grant_to(role::pg_catalog.regrole);
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

-- +goose StatementBegin
DO $$
DECLARE
    guarded text;
    others  text;
BEGIN
    SELECT string_agg(DISTINCT t.tgrelid::regclass::text, ', ') INTO guarded
      FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE p.pronamespace = 'fencing'::regnamespace AND p.proname <> 'make_durable' AND t.tgparentid = 0;
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
           'fencing.resource'::regclass, 'fencing.known_resource'::regclass, 'fencing.origin'::regclass, 'fencing.token'::regclass, 'fencing.guarded'::regclass,
           coalesce(to_regclass('fencing.migration'), 0::oid),
           coalesce(pg_get_serial_sequence(to_regclass('fencing.migration')::text, 'id')::regclass, 0::oid)))
       AND NOT (d.classid = 'pg_proc'::regclass AND d.objid IN (
           'fencing.version()'::regprocedure, 'fencing.choose_epoch_source()'::regprocedure, 'fencing.chosen_epoch()'::regprocedure,
           'fencing.epoch()'::regprocedure, 'fencing.epoch_source()'::regprocedure, 'fencing.system_identifier()'::regprocedure, 'fencing.notes()'::regprocedure,
           'fencing.token_of_new_epoch(bigint)'::regprocedure, 'fencing.issue(text)'::regprocedure, 'fencing.issue_first(text, text, bigint)'::regprocedure,
           'fencing.issue_after(text, bigint)'::regprocedure,
           'fencing.make_durable()'::regprocedure, 'fencing.stamped(text)'::regprocedure,
           'fencing.stamp(text, bigint, interval)'::regprocedure, 'fencing.rebase()'::regprocedure,
           'fencing.grant_to(regrole)'::regprocedure, 'fencing.revoke_from(regrole)'::regprocedure,
           'fencing.is_applied()'::regprocedure, 'fencing.may_know()'::regprocedure, 'fencing.share_writing(text[])'::regprocedure,
           'fencing.check_write(text, text, name, name)'::regprocedure, 'fencing.check_values(text[], text, text, text, name, name)'::regprocedure,
           'fencing.is_current(text)'::regprocedure, 'fencing.check_statement()'::regprocedure, 'fencing.check_row()'::regprocedure,
           'fencing.checker(text)'::regprocedure, 'fencing.checker_body(text)'::regprocedure, 'fencing.checkers()'::regprocedure, 'fencing.make_checker(name)'::regprocedure,
           'fencing.refuse_shadows(text, name, name)'::regprocedure, 'fencing.refuse_column(regclass, text)'::regprocedure, 'fencing.unfit(regclass, name)'::regprocedure, 'fencing.refuse_truncate()'::regprocedure, 'fencing.stamp_row()'::regprocedure,
           'fencing.wanted(regclass, text, name, text)'::regprocedure, 'fencing.family(regclass)'::regprocedure,
           'fencing.objects()'::regprocedure, 'fencing.privilege_faults()'::regprocedure, 'fencing.installation_faults()'::regprocedure,
           'fencing.present()'::regprocedure, 'fencing.installed()'::regprocedure, 'fencing.tags()'::regprocedure, 'fencing.arguments(oid)'::regprocedure,
           'fencing.compare(regclass, text, name, text)'::regprocedure,
           'fencing.triggers(regclass)'::regprocedure, 'fencing.faults(regclass, text, name, text)'::regprocedure,
           'fencing.complete(regclass, text, name, text)'::regprocedure, 'fencing.record(regclass, text, name, text, boolean)'::regprocedure,
           'fencing.start(regclass, text, name, text)'::regprocedure, 'fencing.guard(regclass, text)'::regprocedure,
           'fencing.guard_by(regclass, name, text)'::regprocedure, 'fencing.unguard(regclass)'::regprocedure,
           'fencing.verify()'::regprocedure, 'fencing.on_ddl()'::regprocedure))
       AND NOT (d.classid = 'pg_proc'::regclass AND d.objid IN (SELECT c.object FROM fencing.checkers() c));
    IF others IS NOT NULL THEN
        RAISE EXCEPTION 'fencing can''t be removed: its schema also holds %', others USING
            ERRCODE = '2BP01',
            HINT = 'Move or drop these first.';
    END IF;
    -- And does anything elsewhere need what the next step down will drop?
    BEGIN
        DROP FUNCTION fencing.stamp(text, bigint, interval), fencing.issue_after(text, bigint), fencing.issue(text);
        DROP TABLE fencing.origin, fencing.known_resource, fencing.resource;
        DROP FUNCTION fencing.epoch(), fencing.chosen_epoch();
        DROP SEQUENCE fencing.token;
        RAISE EXCEPTION USING ERRCODE = 'LF000';
    EXCEPTION WHEN SQLSTATE 'LF000' THEN
        NULL; -- no, and all of it is there again
    END;
END $$;
-- +goose StatementEnd
-- +goose StatementBegin
DO $$
DECLARE
    checker text;
BEGIN
    FOR checker IN SELECT c.name FROM fencing.checkers() c LOOP
        EXECUTE format('DROP FUNCTION %s', checker);
    END LOOP;
END $$;
-- +goose StatementEnd
DROP FUNCTION fencing.on_ddl();
DROP FUNCTION fencing.verify();
DROP FUNCTION fencing.installation_faults();
DROP FUNCTION fencing.installed();
DROP FUNCTION fencing.present();
DROP FUNCTION fencing.tags();
DROP FUNCTION fencing.arguments(oid);
DROP FUNCTION fencing.unguard(regclass);
DROP FUNCTION fencing.guard_by(regclass, name, text);
DROP FUNCTION fencing.guard(regclass, text);
DROP FUNCTION fencing.start(regclass, text, name, text);
DROP FUNCTION fencing.record(regclass, text, name, text, boolean);
DROP FUNCTION fencing.complete(regclass, text, name, text);
DROP FUNCTION fencing.unfit(regclass, name);
DROP FUNCTION fencing.faults(regclass, text, name, text);
DROP FUNCTION fencing.compare(regclass, text, name, text);
DROP FUNCTION fencing.triggers(regclass);
DROP FUNCTION fencing.wanted(regclass, text, name, text);
DROP FUNCTION fencing.family(regclass);
DROP FUNCTION fencing.stamp_row();
DROP FUNCTION fencing.refuse_truncate();
DROP FUNCTION fencing.make_checker(name);
DROP FUNCTION fencing.checkers();
DROP FUNCTION fencing.refuse_column(regclass, text);
DROP FUNCTION fencing.refuse_shadows(text, name, name);
DROP FUNCTION fencing.checker_body(text);
DROP FUNCTION fencing.checker(text);
DROP FUNCTION fencing.check_row();
DROP FUNCTION fencing.check_statement();
DROP FUNCTION fencing.is_current(text);
DROP FUNCTION fencing.check_values(text[], text, text, text, name, name);
DROP FUNCTION fencing.check_write(text, text, name, name);
DROP FUNCTION fencing.share_writing(text[]);
DROP FUNCTION fencing.may_know();
DROP FUNCTION fencing.is_applied();
DROP TABLE fencing.guarded;
CREATE OR REPLACE FUNCTION fencing.version() RETURNS bigint
LANGUAGE sql IMMUTABLE
AS 'SELECT 1::bigint';

-- +goose StatementBegin
DO $$
BEGIN
    PERFORM pg_catalog.set_config('search_path', pg_catalog.current_setting('fencing.search_path'), true);
END $$;
-- +goose StatementEnd
