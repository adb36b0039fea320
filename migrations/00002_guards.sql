-- +goose Up

CREATE TABLE fencing.guarded (
    target     regclass    PRIMARY KEY,
    name       text        NOT NULL, -- as it was when it was guarded
    resource   text        CHECK (resource <> ''),
    by_column  name,
    prefix     text        NOT NULL DEFAULT '',
    guarded_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((resource IS NULL) <> (by_column IS NULL))
);
COMMENT ON TABLE fencing.guarded IS
    'The tables that fencing.guard and fencing.guard_by have guarded, each with all of its partitions or children. fencing.verify() compares it with the triggers that are there.';
GRANT SELECT ON fencing.guarded TO PUBLIC;

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
        SELECT r.mark, r.epoch INTO last FROM fencing.resource r WHERE r.name = resource COLLATE "C" ORDER BY r.mark DESC LIMIT 1;
    ELSE
        -- A snapshot that is older than the mark fails to serialize here. No
        -- weaker row lock does that.
        SELECT r.mark, r.epoch INTO last FROM fencing.resource r WHERE r.name = resource COLLATE "C" ORDER BY r.mark DESC LIMIT 1 FOR SHARE;
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
    IF NOT is_past AND (last.mark IS NULL OR token > last.mark) THEN
        RAISE EXCEPTION '% on % refused: token % was never issued for resource %', operation, target, token, to_json(resource) USING
            ERRCODE = 'LF003', SCHEMA = table_schema, TABLE = table_name,
            DETAIL = concat_ws(' ', 'token=' || token, 'current=' || current, 'resource=' || to_json(resource)),
            HINT = 'Stamp with the token that fencing.issue returned when the lock was granted.';
    END IF;
    RAISE EXCEPTION '% on % refused: token % of resource % is stale%', operation, target, token, to_json(resource), coalesce(', the current one is ' || current, '') USING
        ERRCODE = 'LF001', SCHEMA = table_schema, TABLE = table_name,
        DETAIL = concat_ws(' ', 'token=' || token, 'current=' || current, 'resource=' || to_json(resource), 'table=' || to_json(target)),
        HINT = CASE WHEN is_past AND token >= coalesce(last.mark, 0) THEN 'The lock was lost when the server was promoted or the database restored.'
            ELSE 'The lock was lost and another holder has it or had it since.' END || ' Give up this work, or take the lock again for a new token.';
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION fencing.check_statement() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- As fencing.stamped has it.
    token text := split_part(split_part(left(split_part(current_setting('fencing.stamps', true), E'\n' || to_json(tg_argv[0]) || ':', 2), 20), ',', 1), '}', 1);
    locked boolean; -- an assignment costs less than PERFORM
BEGIN
    -- What fencing.check_write allows is allowed here in most cases, for less: it
    -- is paid for by every statement. The lock is that of fencing.share_writing.
    IF token <> '' AND current_setting('transaction_isolation') = 'read committed' THEN
        BEGIN
            locked := pg_advisory_xact_lock_shared(hashtextextended(tg_argv[0] COLLATE "C", 1)) IS NULL;
            IF EXISTS (SELECT FROM fencing.resource r
                WHERE r.name = tg_argv[0] COLLATE "C" AND r.mark = token::bigint AND r.epoch = fencing.chosen_epoch())
            THEN
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

-- SQL for the text of a column's value, of which $1 is the row, or the column is
-- in scope. It must call nothing but PostgreSQL's own functions, because it runs
-- with the rights of the trigger functions: so it is no cast, which can be
-- somebody's function, and what is no column could be one.
-- +goose StatementBegin
CREATE FUNCTION fencing.text_of(target regclass, by_column text, of_row text) RETURNS text
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = target AND a.attname = by_column AND a.attnum > 0 AND NOT a.attisdropped) THEN
        RAISE EXCEPTION '% has no column %', target, quote_ident(by_column) USING
            ERRCODE = '42703',
            HINT = format('It is guarded by that column. Give it its name back, or SELECT fencing.unguard(%L) and guard the table by another.', target);
    END IF;
    IF EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = target AND a.attname = by_column AND a.atttypid = 'text'::regtype) THEN
        RETURN format('(%s%I COLLATE "C")', of_row, by_column); -- much the same, and sooner
    END IF;
    RETURN format('(CASE WHEN %1$s%2$I IS NOT NULL THEN format(''%%s'', %1$s%2$I) END COLLATE "C")', of_row, by_column);
END $$;
-- +goose StatementEnd

-- Where a column names the resource: after the statement, for the resources among
-- its rows.
-- +goose StatementBegin
CREATE FUNCTION fencing.check_rows() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    named text := fencing.text_of(tg_relid, tg_argv[0], '') || ' AS value';
    rows  text := CASE tg_op
        WHEN 'INSERT' THEN format('SELECT DISTINCT %s FROM fencing_new', named)
        WHEN 'DELETE' THEN format('SELECT DISTINCT %s FROM fencing_old', named)
        ELSE format('SELECT %1$s FROM fencing_old UNION SELECT %1$s FROM fencing_new', named) END;
    names text[];
BEGIN
    -- Of a trigger without transition tables, a view of the session's own would
    -- be read in their place, with the rights of this function.
    IF to_regclass('pg_temp.fencing_old') IS NOT NULL OR to_regclass('pg_temp.fencing_new') IS NOT NULL THEN
        RAISE EXCEPTION '% on %.% refused: the session has a temporary fencing_old or fencing_new', tg_op, quote_ident(tg_table_schema), quote_ident(tg_table_name) USING
            ERRCODE = '42710',
            HINT = 'Drop it, or give it another name.';
    END IF;
    EXECUTE format('SELECT array_agg(v.value ORDER BY v.value) FROM (%s) v', rows) INTO names;
    IF names IS NOT NULL THEN
        PERFORM fencing.check_values(names, tg_argv[0], tg_argv[1], tg_op, tg_table_schema, tg_table_name);
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- Checks the resources that values of a column name; they are different, in order,
-- and may be NULL for none. What fencing.check_write allows is allowed here in most
-- cases, for all of them at once.
-- +goose StatementBegin
CREATE FUNCTION fencing.check_values(vals text[], by_column text, prefix text, operation text, table_schema name, table_name name) RETURNS void
LANGUAGE plpgsql VOLATILE
AS $$
DECLARE
    resources text[];
    stamps    jsonb;
    resource  text;
    is_passed boolean := false;
BEGIN
    resources := ARRAY(SELECT prefix || v.value FROM unnest(vals) WITH ORDINALITY AS v (value, number)
        WHERE prefix || v.value <> '' ORDER BY v.number);
    stamps := nullif(current_setting('fencing.stamps', true), '')::jsonb;
    -- Not with a lock for each name of an import that is not stamped at all.
    IF current_setting('transaction_isolation') = 'read committed'
        AND NOT EXISTS (SELECT FROM unnest(resources) AS n (name) WHERE stamps ->> n.name IS NULL)
    THEN
        PERFORM fencing.share_writing(resources);
        BEGIN
            -- Not as another NOT EXISTS: that could be planned to read all marks.
            is_passed := NOT EXISTS (SELECT FROM unnest(resources) AS n (name) WHERE (
                SELECT true FROM fencing.resource r WHERE r.name = n.name COLLATE "C"
                    AND r.mark = (stamps ->> n.name)::bigint AND r.epoch = fencing.chosen_epoch()) IS NULL);
        EXCEPTION WHEN feature_not_supported OR object_not_in_prerequisite_state OR insufficient_privilege OR undefined_function THEN
            NULL; -- the epoch has another source by now
        END;
    END IF;
    IF NOT is_passed THEN
        FOREACH resource IN ARRAY resources LOOP
            PERFORM fencing.check_write(resource, operation, table_schema, table_name);
        END LOOP;
    END IF;
    IF cardinality(resources) < cardinality(vals) AND NOT fencing.is_applied() THEN
        RAISE EXCEPTION '% on %.% refused: a row names no resource', operation, quote_ident(table_schema), quote_ident(table_name) USING
            ERRCODE = 'LF002', SCHEMA = table_schema, TABLE = table_name, COLUMN = by_column,
            HINT = format('Give %I a value: it names the resource whose holder may write the row.', by_column);
    END IF;
END $$;
-- +goose StatementEnd

-- Checks one row. A partition that is attached later has no statement triggers
-- yet, but it gets its row triggers from the table that it is attached to. And of
-- a row that MERGE moves to another partition no transition table tells.
-- +goose StatementBegin
CREATE FUNCTION fencing.check_row() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    vals   text[] := '{}';
    value  text;
    of_row text;
BEGIN
    IF tg_nargs = 1 THEN
        PERFORM fencing.check_write(tg_argv[0], tg_op, tg_table_schema, tg_table_name);
        RETURN NULL;
    END IF;
    of_row := 'SELECT ' || fencing.text_of(tg_relid, tg_argv[0], '($1).');
    IF tg_op <> 'INSERT' THEN
        EXECUTE of_row USING old INTO value;
        vals := ARRAY[value];
    END IF;
    IF tg_op <> 'DELETE' THEN
        EXECUTE of_row USING new INTO value;
        vals := vals || value;
    END IF;
    PERFORM fencing.check_values(ARRAY(SELECT DISTINCT v.value COLLATE "C" FROM unnest(vals) AS v (value) ORDER BY 1), tg_argv[0], tg_argv[1], tg_op, tg_table_schema, tg_table_name);
    IF tg_when = 'BEFORE' THEN
        RETURN new;
    END IF;
    RETURN NULL;
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

-- A table and all of its partitions, or of the tables that inherit from it.
-- +goose StatementBegin
CREATE FUNCTION fencing.family(target regclass) RETURNS TABLE (member regclass, depth int)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE f (oid, depth) AS (
        SELECT target::oid, 0
        UNION
        SELECT i.inhrelid, f.depth + 1 FROM f JOIN pg_inherits i ON i.inhparent = f.oid
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
-- zz_fencing_move is for rows that may go to another partition, since no
-- transition table has them if it is MERGE that moves them.
--
-- A trigger of somebody else that fires before an UPDATE may move a row as well,
-- or change whose it is afterwards: where there is one, each row is checked.
--
-- zz_fencing_token always fires; its condition is there to keep the column from
-- being dropped under it.
--
-- fencing_unguard_first never fires. That it is there keeps PostgreSQL from
-- attaching the table to a parent, by way of which it would be written unchecked.
--
-- How pg_get_triggerdef writes a text and a name, two settings decide.
-- +goose StatementBegin
CREATE FUNCTION fencing.wanted(target regclass, resource text, by_column name, prefix text)
RETURNS TABLE (member regclass, depth int, cloned boolean, name name, state "char", definition text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET quote_all_identifiers = off
AS $$
    WITH argument (list) AS (
        SELECT string_agg('''' || replace(a.text, '''', '''''') || '''', ', ' ORDER BY a.number)
            FROM unnest(CASE WHEN by_column IS NULL THEN ARRAY[resource] ELSE ARRAY[by_column::text, prefix] END)
            WITH ORDINALITY AS a (text, number)
    ), member AS (
        SELECT f.member AS oid, f.depth, f.depth = 0 AS is_root, c.relkind = 'r' AS is_leaf, c.relispartition AS is_partition,
            EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'fencing_token' AND NOT a.attisdropped) AS is_stamped
        FROM fencing.family(target) f JOIN pg_class c ON c.oid = f.member
    ), watch (each_row) AS (
        SELECT by_column IS NOT NULL AND current_setting('server_version_num')::int >= 150000 AND EXISTS (
            SELECT FROM member m JOIN pg_trigger t ON t.tgrelid = m.oid JOIN pg_proc p ON p.oid = t.tgfoid
            WHERE t.tgtype & 19 = 19 AND NOT t.tgisinternal AND p.pronamespace <> 'fencing'::regnamespace)
    ), keys (list) AS (
        SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_attribute a
        WHERE a.attrelid = target AND a.attname IN (
            SELECT k.attname FROM member m JOIN pg_depend d ON d.objid = m.oid AND d.refobjid = m.oid AND d.objsubid > 0 AND d.refobjsubid = 0
            JOIN pg_attribute k ON k.attrelid = m.oid AND k.attnum = d.objsubid
            WHERE NOT m.is_leaf AND d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'i')
    ), w (oid, depth, cloned, name, state, event, action) AS (
        SELECT oid, depth, false, 'fencing_guard', 'A', 'BEFORE INSERT OR DELETE OR UPDATE OR TRUNCATE',
            'FOR EACH STATEMENT EXECUTE FUNCTION fencing.check_statement(' || list || ')'
            FROM member, argument WHERE by_column IS NULL
        UNION ALL
        SELECT oid, depth, false, 'fencing_guard_' || lower(t.event), 'A', 'AFTER ' || t.event,
            'REFERENCING ' || t.rows || ' FOR EACH STATEMENT EXECUTE FUNCTION fencing.check_rows(' || list || ')'
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
            'AFTER INSERT OR DELETE OR UPDATE', 'FOR EACH ROW EXECUTE FUNCTION fencing.check_row(' || list || ')'
            FROM member, argument, watch WHERE is_partition OR NOT is_leaf
        UNION ALL
        SELECT oid, depth, depth > 1, 'fencing_guard_row_replica', CASE WHEN is_leaf OR depth % 2 = 0 THEN 'D' ELSE 'R' END,
            'AFTER INSERT OR DELETE OR UPDATE', 'FOR EACH ROW EXECUTE FUNCTION fencing.check_row(' || list || ')'
            FROM member, argument WHERE is_partition AND depth > 0 AND (depth > 1 OR NOT is_leaf)
        UNION ALL
        SELECT oid, depth, is_partition, 'zz_fencing_move', 'A', 'BEFORE UPDATE OF ' || keys.list,
            'FOR EACH ROW EXECUTE FUNCTION fencing.check_row(' || argument.list || ')'
            FROM member, argument, keys WHERE by_column IS NOT NULL AND keys.list IS NOT NULL AND (is_partition OR NOT is_leaf)
        UNION ALL
        SELECT oid, depth, is_partition, 'zz_fencing_token', 'A', 'BEFORE INSERT OR UPDATE',
            'FOR EACH ROW WHEN (((new.fencing_token IS NULL) IS NOT NULL)) EXECUTE FUNCTION fencing.stamp_row(' || list || ')'
            FROM member, argument WHERE is_stamped
        UNION ALL
        SELECT oid, depth, false, 'fencing_unguard_first', 'A', 'AFTER DELETE',
            'REFERENCING OLD TABLE AS fencing_old FOR EACH ROW WHEN (false) EXECUTE FUNCTION fencing.check_row(' || list || ')'
            FROM member, argument WHERE is_root AND is_leaf
    )
    SELECT w.oid, w.depth, w.cloned, w.name::name, w.state::"char",
        'CREATE TRIGGER ' || w.name || ' ' || w.event || ' ON ' || w.oid || ' ' || w.action
    FROM w ORDER BY w.depth, w.oid::text, w.name
$$;
-- +goose StatementEnd

-- The triggers of this schema on a table, without those that belong to the
-- table that it is a partition of.
-- +goose StatementBegin
CREATE FUNCTION fencing.triggers(member regclass) RETURNS SETOF pg_catalog.pg_trigger
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT t.* FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
     WHERE t.tgrelid = member AND p.pronamespace = 'fencing'::regnamespace AND t.tgparentid = 0
$$;
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

-- What of a guard is not as it should be, and what mends it.
-- +goose StatementBegin
CREATE FUNCTION fencing.faults(target regclass, resource text, by_column name, prefix text)
RETURNS TABLE (problem text, fix text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET quote_all_identifiers = off
AS $$
    WITH call (guard, unguard) AS (
        SELECT CASE WHEN by_column IS NULL THEN format('SELECT fencing.guard(%L, %L)', target, resource)
            ELSE format('SELECT fencing.guard_by(%L, %L, %L)', target, by_column, prefix) END,
            format('SELECT fencing.unguard(%L)', target)
    ), compared AS (
        SELECT w.*, t.oid AS found, t.tgenabled AS is_state, pg_get_triggerdef(t.oid) <> w.definition AND t.tgparentid = 0 AS is_other,
            w.depth > 0 AND NOT EXISTS (SELECT FROM fencing.triggers(w.member)) AS is_new
        FROM fencing.wanted(target, resource, by_column, prefix) w
        LEFT JOIN pg_trigger t ON t.tgrelid = w.member AND t.tgname = w.name
    )
    SELECT DISTINCT CASE WHEN c.relispartition
            THEN format('%s was attached later: a TRUNCATE of it is not checked, and its rows are checked one by one', w.member)
            ELSE format('%s became a child later: what is written to it directly is not checked', w.member) END, call.guard
        FROM compared w JOIN pg_class c ON c.oid = w.member, call WHERE w.is_new AND c.relkind IN ('r', 'p')
    UNION ALL
    SELECT format('trigger %s of %s ', w.name, w.member) || CASE
            WHEN w.found IS NULL THEN 'is missing'
            WHEN w.is_other THEN 'is not the one that belongs there'
            WHEN w.state = 'D' THEN 'checks each row a second time'
            WHEN w.is_state = 'D' THEN 'is disabled'
            WHEN w.is_state = 'A' THEN 'checks each row a second time where session_replication_role is replica'
            WHEN w.is_state = 'R' THEN 'fires only where session_replication_role is replica'
            ELSE 'does not fire where session_replication_role is replica' END,
            CASE WHEN w.is_other THEN (SELECT string_agg(format('DROP TRIGGER %I ON %s; ', o.name, o.member), '') FROM compared o WHERE o.is_other)
            ELSE '' END || call.guard
        FROM compared w, call WHERE NOT w.is_new AND (w.found IS NULL OR w.is_state <> w.state OR w.is_other)
    UNION ALL
    SELECT format('trigger %s of %s does not belong there', t.tgname, f.member), format('DROP TRIGGER %I ON %s', t.tgname, f.member)
        FROM fencing.family(target) f, fencing.triggers(f.member) t
        WHERE NOT EXISTS (SELECT FROM compared w WHERE w.found = t.oid)
    UNION ALL
    SELECT format('%s is unlogged: a crash empties it, whoever holds the lock', f.member), format('ALTER TABLE %s SET LOGGED', f.member)
        FROM fencing.family(target) f JOIN pg_class c ON c.oid = f.member WHERE c.relpersistence <> 'p'
    UNION ALL
    SELECT format('%s is a foreign table: what is written where it comes from is not checked', f.member), format('-- detach %s from %s', f.member, target)
        FROM fencing.family(target) f JOIN pg_class c ON c.oid = f.member WHERE c.relkind NOT IN ('r', 'p')
    UNION ALL
    SELECT format('%s belongs to %s: what is written by way of it is not checked', f.member, i.inhparent::regclass),
        CASE WHEN f.depth = 0 THEN format('%s; -- then guard %s', call.unguard, i.inhparent::regclass)
            ELSE format('ALTER TABLE %s NO INHERIT %s', f.member, i.inhparent::regclass) END
        FROM fencing.family(target) f JOIN pg_inherits i ON i.inhrelid = f.member, call
        WHERE i.inhparent NOT IN (SELECT o.member FROM fencing.family(target) o)
    UNION ALL
    SELECT format('%s %s', target, fencing.unfit(target, by_column)),
        format('-- give the column its name and type back, or %s and guard the table by another', call.unguard)
        FROM call WHERE fencing.unfit(target, by_column) IS NOT NULL
$$;
-- +goose StatementEnd

-- Makes a guard whole.
-- +goose StatementBegin
CREATE FUNCTION fencing.complete(target regclass, resource text, by_column name, prefix text) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET quote_all_identifiers = off
AS $$
DECLARE
    w     record;
    found record;
BEGIN
    EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', target);
    FOR w IN SELECT * FROM fencing.wanted(target, resource, by_column, prefix) LOOP
        SELECT t.tgenabled AS state, pg_get_triggerdef(t.oid) AS definition INTO found
          FROM pg_trigger t WHERE t.tgrelid = w.member AND t.tgname = w.name;
        IF w.name = 'zz_fencing_move' AND found.definition <> w.definition
            AND regexp_replace(found.definition, ' UPDATE OF .* ON ', ' ON ') = regexp_replace(w.definition, ' UPDATE OF .* ON ', ' ON ')
        THEN
            -- A table that is partitioned by other columns was attached.
            EXECUTE format('DROP TRIGGER %I ON %s', w.name, w.member);
            found.definition := NULL;
        END IF;
        IF found.definition <> w.definition THEN
            RAISE EXCEPTION '% has another trigger % already', w.member, w.name USING
                ERRCODE = '55000',
                DETAIL = found.definition,
                HINT = format('Remove it first, with SELECT fencing.unguard(%L) if it belongs to another guard.', w.member);
        ELSIF found.definition IS NULL THEN
            EXECUTE w.definition;
            found.state := 'O';
        END IF;
        IF found.state <> w.state THEN
            EXECUTE format('ALTER TABLE %s %s TRIGGER %I', w.member, CASE w.state WHEN 'D' THEN 'DISABLE' WHEN 'O' THEN 'ENABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END, w.name);
        END IF;
    END LOOP;
END $$;
-- +goose StatementEnd

-- Which table the guards are on is recorded with the rights of the owner of the
-- schema, for those who may act for the owner of the table.
-- +goose StatementBegin
CREATE FUNCTION fencing.record(target regclass, resource text, by_column name, prefix text, is_guarded boolean) RETURNS void
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- The caller's current_user is not to be seen here, but what it has set is.
    IF NOT (SELECT pg_has_role(coalesce(nullif(current_setting('role'), 'none'), session_user), c.relowner, 'USAGE')
        FROM pg_class c WHERE c.oid = target)
    THEN
        RAISE EXCEPTION 'must be owner of table %', target USING ERRCODE = '42501';
    END IF;
    DELETE FROM fencing.guarded g WHERE g.target = record.target AND NOT is_guarded
        OR g.name = record.target::text AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = g.target);
    IF is_guarded THEN
        INSERT INTO fencing.guarded AS g (target, name, resource, by_column, prefix)
        VALUES (target, target::text, resource, by_column, prefix)
        ON CONFLICT ON CONSTRAINT guarded_pkey DO UPDATE SET name = excluded.name;
    END IF;
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
    IF guarded.target IS NULL OR EXISTS (SELECT FROM fencing.faults(target, resource, by_column, prefix)) THEN
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
        AND unguard.target IN (SELECT f.member FROM fencing.family(g.target) f);
    IF t.name IS NOT NULL THEN
        RAISE EXCEPTION '% is guarded with %', target, t.name USING
            ERRCODE = '55000',
            HINT = format('Remove the guard of all of it, SELECT fencing.unguard(%L), or detach %s first.', t.name, target);
    END IF;
    FOR t IN SELECT f.member, g.tgname AS name FROM fencing.family(target) f, fencing.triggers(f.member) g ORDER BY f.depth LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', t.name, t.member);
    END LOOP;
    PERFORM fencing.record(target, NULL, NULL, NULL, false);
END $$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.unguard(regclass) IS
    'Lets everybody with the privilege write to the table again, and to its partitions and children. To be called by the owner of the table.';

-- +goose StatementBegin
CREATE FUNCTION fencing.verify()
RETURNS TABLE (target text, resource text, by_column text, prefix text, problem text, fix text)
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT g.target::text, g.resource, g.by_column, g.prefix, f.problem, f.fix
        FROM fencing.guarded g JOIN pg_class c ON c.oid = g.target
        LEFT JOIN LATERAL fencing.faults(g.target, g.resource, g.by_column, g.prefix) f ON true
    UNION ALL
    SELECT g.name, g.resource, g.by_column, g.prefix, 'is another table than the one that was guarded under this name',
        CASE WHEN g.by_column IS NULL THEN format('SELECT fencing.guard(%L, %L)', g.name, g.resource)
            ELSE format('SELECT fencing.guard_by(%L, %L, %L)', g.name, g.by_column, g.prefix) END
        FROM fencing.guarded g JOIN pg_class c ON c.oid <> g.target AND c.relkind IN ('r', 'p') JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE g.name = format('%I.%I', n.nspname, c.relname)
        AND NOT EXISTS (SELECT FROM fencing.guarded o, fencing.family(o.target) f WHERE f.member = c.oid)
    UNION ALL
    SELECT DISTINCT t.tgrelid::regclass::text, NULL, NULL, NULL,
        'has triggers of a guard that is not recorded: it was detached from a guarded table, or comes from another database; guard it, or remove them',
        format('SELECT fencing.unguard(%L)', t.tgrelid::regclass)
        FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_class c ON c.oid = t.tgrelid
        WHERE p.pronamespace = 'fencing'::regnamespace AND p.proname <> 'make_durable' AND t.tgparentid = 0 AND c.relpersistence <> 't'
        AND NOT EXISTS (SELECT FROM fencing.guarded g, fencing.family(g.target) f WHERE f.member = t.tgrelid)
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
    SELECT NULL, NULL, NULL, NULL, 'the table fencing.resource is not logged: a crash forgets the marks', 'ALTER TABLE fencing.resource SET LOGGED'
        FROM pg_class c WHERE c.oid = 'fencing.resource'::regclass AND c.relpersistence <> 'p'
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, 'the table fencing.resource has triggers, rules or row security: they can change or hide marks', '-- remove them'
        FROM pg_class c WHERE c.oid = 'fencing.resource'::regclass AND (c.relrowsecurity
            OR EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class = c.oid)
            OR EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal AND t.tgname <> 'make_durable'))
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, 'the trigger make_durable of fencing.resource is not as it was made: a crash can forget a token that somebody has',
        'DROP TRIGGER IF EXISTS make_durable ON fencing.resource; CREATE CONSTRAINT TRIGGER make_durable AFTER INSERT OR UPDATE ON fencing.resource DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION fencing.make_durable(); ALTER TABLE fencing.resource ENABLE ALWAYS TRIGGER make_durable'
        WHERE NOT EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = 'fencing.resource'::regclass AND t.tgname = 'make_durable' AND t.tgenabled = 'A'
            AND t.tgfoid = 'fencing.make_durable()'::regprocedure AND t.tgtype = 21 AND t.tgdeferrable AND t.tginitdeferred AND t.tgqual IS NULL)
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, format('the function %s has another owner than the schema, who can change what it does', p.oid::regprocedure),
        format('ALTER FUNCTION %s OWNER TO %s', p.oid::regprocedure, n.nspowner::regrole)
        FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = 'fencing' AND p.proowner <> n.nspowner
    UNION ALL
    SELECT NULL, NULL, NULL, NULL, format('the function %s lost its settings', p.oid::regprocedure),
        format('ALTER FUNCTION %s SECURITY DEFINER SET search_path = pg_catalog, pg_temp', p.oid::regprocedure)
            || CASE p.proname WHEN 'issue' THEN ' SET lock_timeout = ''200ms''' ELSE '' END
        FROM pg_proc p
        WHERE p.pronamespace = 'fencing'::regnamespace AND p.proname IN ('issue', 'check_statement', 'check_rows', 'check_row', 'refuse_truncate', 'record')
        AND NOT (p.prosecdef AND coalesce(p.proconfig, '{}') @> ('{"search_path=pg_catalog, pg_temp"}'::text[]
            || CASE p.proname WHEN 'issue' THEN '{lock_timeout=200ms}'::text[] ELSE '{}' END))
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
$$;
-- +goose StatementEnd
COMMENT ON FUNCTION fencing.verify() IS
    'One row for each guarded table that is whole, with no problem; else one for each problem, with what mends it. Problems without a table are of the whole installation.';

-- +goose StatementBegin
CREATE FUNCTION fencing.on_ddl() RETURNS event_trigger
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    altered regclass;
    root    regclass;
    g       record;
BEGIN
    FOR altered IN SELECT DISTINCT c.objid::regclass FROM pg_event_trigger_ddl_commands() c WHERE c.classid = 'pg_class'::regclass LOOP
        FOR root IN
            WITH RECURSIVE above (oid) AS (
                SELECT altered::oid UNION SELECT i.inhparent FROM above a JOIN pg_inherits i ON i.inhrelid = a.oid
            ) SELECT a.oid::regclass FROM above a WHERE NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = a.oid)
        LOOP
            -- Whoever alters a table may read the catalogs, but perhaps not the
            -- schema.
            CONTINUE WHEN (
                WITH RECURSIVE f (oid) AS (
                    SELECT root::oid UNION SELECT i.inhrelid FROM f JOIN pg_inherits i ON i.inhparent = f.oid
                ), has (guard) AS (
                    SELECT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid
                        WHERE t.tgrelid = f.oid AND t.tgparentid = 0 AND p.pronamespace = 'fencing'::regnamespace) FROM f
                ) SELECT bool_and(h.guard) OR NOT bool_or(h.guard) FROM has h);
            SELECT m.* INTO g FROM fencing.guarded m WHERE m.target = root;
            IF g.target IS NOT NULL AND EXISTS (SELECT FROM fencing.family(root) f WHERE NOT EXISTS (SELECT FROM fencing.triggers(f.member))) THEN
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
    'For an event trigger, which only a superuser can create: CREATE EVENT TRIGGER fencing ON ddl_command_end WHEN TAG IN (''CREATE TABLE'', ''ALTER TABLE'') EXECUTE FUNCTION fencing.on_ddl(). It guards what becomes a part of a guarded table at once.';

REVOKE ALL ON FUNCTION fencing.share_writing(text[]), fencing.check_write(text, text, name, name), fencing.check_values(text[], text, text, text, name, name) FROM PUBLIC;

-- +goose StatementBegin
CREATE OR REPLACE FUNCTION fencing.version() RETURNS bigint
LANGUAGE sql IMMUTABLE
AS 'SELECT 2::bigint';
-- +goose StatementEnd

-- +goose Down

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
           'fencing.token_of_new_epoch(bigint)'::regprocedure, 'fencing.issue(text)'::regprocedure, 'fencing.issue_first(text, text)'::regprocedure,
           'fencing.make_durable()'::regprocedure, 'fencing.stamped(text)'::regprocedure,
           'fencing.stamp(text, bigint, interval)'::regprocedure, 'fencing.rebase()'::regprocedure,
           'fencing.grant_to(regrole)'::regprocedure, 'fencing.revoke_from(regrole)'::regprocedure,
           'fencing.is_applied()'::regprocedure, 'fencing.may_know()'::regprocedure, 'fencing.share_writing(text[])'::regprocedure,
           'fencing.check_write(text, text, name, name)'::regprocedure, 'fencing.check_values(text[], text, text, text, name, name)'::regprocedure,
           'fencing.check_statement()'::regprocedure, 'fencing.check_rows()'::regprocedure, 'fencing.check_row()'::regprocedure,
           'fencing.text_of(regclass, text, text)'::regprocedure, 'fencing.unfit(regclass, name)'::regprocedure, 'fencing.refuse_truncate()'::regprocedure, 'fencing.stamp_row()'::regprocedure,
           'fencing.wanted(regclass, text, name, text)'::regprocedure, 'fencing.family(regclass)'::regprocedure,
           'fencing.triggers(regclass)'::regprocedure, 'fencing.faults(regclass, text, name, text)'::regprocedure,
           'fencing.complete(regclass, text, name, text)'::regprocedure, 'fencing.record(regclass, text, name, text, boolean)'::regprocedure,
           'fencing.start(regclass, text, name, text)'::regprocedure, 'fencing.guard(regclass, text)'::regprocedure,
           'fencing.guard_by(regclass, name, text)'::regprocedure, 'fencing.unguard(regclass)'::regprocedure,
           'fencing.verify()'::regprocedure, 'fencing.on_ddl()'::regprocedure));
    IF others IS NOT NULL THEN
        RAISE EXCEPTION 'fencing can''t be removed: its schema also holds %', others USING
            ERRCODE = '2BP01',
            HINT = 'Move or drop these first.';
    END IF;
    -- And does anything elsewhere need what the next step down will drop?
    BEGIN
        DROP FUNCTION fencing.stamp(text, bigint, interval), fencing.issue(text);
        DROP TABLE fencing.origin, fencing.known_resource, fencing.resource;
        DROP FUNCTION fencing.epoch(), fencing.chosen_epoch();
        DROP SEQUENCE fencing.token;
        RAISE EXCEPTION USING ERRCODE = 'LF000';
    EXCEPTION WHEN SQLSTATE 'LF000' THEN
        NULL; -- no, and all of it is there again
    END;
END $$;
-- +goose StatementEnd
DROP FUNCTION fencing.on_ddl();
DROP FUNCTION fencing.verify();
DROP FUNCTION fencing.unguard(regclass);
DROP FUNCTION fencing.guard_by(regclass, name, text);
DROP FUNCTION fencing.guard(regclass, text);
DROP FUNCTION fencing.start(regclass, text, name, text);
DROP FUNCTION fencing.record(regclass, text, name, text, boolean);
DROP FUNCTION fencing.complete(regclass, text, name, text);
DROP FUNCTION fencing.unfit(regclass, name);
DROP FUNCTION fencing.faults(regclass, text, name, text);
DROP FUNCTION fencing.triggers(regclass);
DROP FUNCTION fencing.wanted(regclass, text, name, text);
DROP FUNCTION fencing.family(regclass);
DROP FUNCTION fencing.stamp_row();
DROP FUNCTION fencing.refuse_truncate();
DROP FUNCTION fencing.check_row();
DROP FUNCTION fencing.check_rows();
DROP FUNCTION fencing.text_of(regclass, text, text);
DROP FUNCTION fencing.check_statement();
DROP FUNCTION fencing.check_values(text[], text, text, text, name, name);
DROP FUNCTION fencing.check_write(text, text, name, name);
DROP FUNCTION fencing.share_writing(text[]);
DROP FUNCTION fencing.may_know();
DROP FUNCTION fencing.is_applied();
DROP TABLE fencing.guarded;
CREATE OR REPLACE FUNCTION fencing.version() RETURNS bigint
LANGUAGE sql IMMUTABLE
AS 'SELECT 1::bigint';
