CREATE SCHEMA traps;
CREATE SCHEMA evil;
GRANT USAGE ON SCHEMA traps, evil TO PUBLIC;

-- A mark is a function whose calls the server counts.
CREATE FUNCTION traps.mark(what text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE FUNCTION traps.%I() RETURNS boolean LANGUAGE plpgsql AS %L', what, 'BEGIN RETURN true; END');
    RETURN format('traps.%I()', what);
END $$;

-- What the server converts to a type without being asked, and stands in for it in
-- a function that fits better. The types that nothing here uses are left out.
CREATE TEMP TABLE stand_in AS
    WITH used (type) AS (
        SELECT unnest('{bool,bytea,"\"char\"",name,int8,int2,int4,text,oid,xid,json,jsonb,interval,timestamptz,date,numeric,float8,varchar,bpchar,
            regclass,regtype,regrole,regnamespace,regprocedure,oidvector,text[],oid[],int4[],int8[],"\"char\"[]",aclitem,pg_lsn,inet}'::regtype[])::oid
    )
    SELECT t.oid AS type, t.oid AS by FROM pg_type t WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype <> 'p'
    UNION SELECT c.casttarget, c.castsource FROM pg_cast c WHERE c.castcontext = 'i' AND c.castsource IN (SELECT u.type FROM used u)
    UNION SELECT t.oid, unnest('{text,name,int4,int8,regclass,oid}'::regtype[])::oid FROM pg_type t WHERE t.typname IN ('anyelement', 'any', 'anynonarray')
    UNION SELECT 'anyarray'::regtype::oid, unnest('{text[],int4[],int8[],oid[]}'::regtype[])::oid;

CREATE FUNCTION traps.usable(type oid) RETURNS boolean LANGUAGE sql AS $$
    SELECT t.typtype <> 'p' FROM pg_type t WHERE t.oid = type
$$;

-- A function that does what the one of pg_catalog does with these arguments.
CREATE FUNCTION traps.function_sql(schema text, original oid, arguments oid[]) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    proc      pg_proc := (SELECT p FROM pg_proc p WHERE p.oid = original);
    signature text := array_to_string(ARRAY(SELECT format_type(a, NULL) FROM unnest(arguments) a), ', ');
    call      text := format('pg_catalog.%I(%s)', proc.proname, array_to_string(ARRAY(SELECT '$' || i FROM generate_series(1, cardinality(arguments)) i), ', '));
    mark      text := format('traps.%I()', 'function ' || proc.proname);
    result    text := format_type(proc.prorettype, NULL);
    body      text := format('RETURN %s;', call);
BEGIN
    IF proc.prokind <> 'f' OR NOT traps.usable(proc.prorettype) AND proc.prorettype <> 'void'::regtype THEN
        result := CASE WHEN traps.usable(proc.prorettype) THEN result ELSE 'text' END;
        body := 'RETURN NULL;';
    ELSIF proc.prorettype = 'void'::regtype THEN
        body := format('PERFORM %s;', call);
    ELSIF proc.proretset THEN
        result := 'SETOF ' || result;
        body := format('RETURN QUERY SELECT %s;', call);
    END IF;
    RETURN format('CREATE FUNCTION %I.%I(%s) RETURNS %s LANGUAGE plpgsql AS %L;', schema, proc.proname, signature, result,
        format('BEGIN PERFORM %s; %s END', mark, body));
END $$;

CREATE FUNCTION traps.operator_sql(schema text, original oid, left_type oid, right_type oid) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    operator pg_operator := (SELECT o FROM pg_operator o WHERE o.oid = original);
    name text := format('%s of %s and %s', schema, left_type, right_type) || operator.oprname;
    mark text := format('traps.%I()', 'operator ' || operator.oprname);
BEGIN
    RETURN format('CREATE FUNCTION traps.%I(%s%s) RETURNS %s LANGUAGE plpgsql AS %L;', name,
        CASE WHEN left_type <> 0 THEN format_type(left_type, NULL) || ', ' ELSE '' END, format_type(right_type, NULL), format_type(operator.oprresult, NULL),
        format('BEGIN PERFORM %s; RETURN %s OPERATOR(pg_catalog.%s) %s; END', mark,
            CASE WHEN left_type <> 0 THEN '$1' ELSE '' END, operator.oprname, CASE WHEN left_type <> 0 THEN '$2' ELSE '$1' END))
        || format('CREATE OPERATOR %I.%s (FUNCTION = traps.%I, %s RIGHTARG = %s);', schema, operator.oprname, name,
        CASE WHEN left_type <> 0 THEN format('LEFTARG = %s,', format_type(left_type, NULL)) ELSE '' END, format_type(right_type, NULL));
END $$;

DO $$
DECLARE
    functions text[] := current_setting('traps.functions');
    operators text[] := current_setting('traps.operators');
    t record;
BEGIN
    -- One query below looks dear, and its compilation takes longer than it.
    SET LOCAL jit = off;
    -- All at once: each CREATE OPERATOR has the session plan all that it runs anew.
    EXECUTE (SELECT string_agg(format('CREATE FUNCTION traps.%I() RETURNS boolean LANGUAGE plpgsql AS %L;', m.name, 'BEGIN RETURN true; END'), ' ') FROM (
        SELECT DISTINCT 'function ' || p.proname FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY (functions)
        UNION SELECT 'operator ' || o.oprname FROM pg_operator o WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprname = ANY (operators)) m (name));

    -- As they are, and with arguments that fit better: with any of one or two, with
    -- one at a time of three. "any" at the end takes several.
    EXECUTE (
        WITH f AS (
            SELECT p.oid, p.proname, p.prokind, CASE WHEN p.provariadic = 0 THEN a.args ELSE a.args[:cardinality(a.args) - 1] || array_fill(p.provariadic, ARRAY[n]) END AS args
              FROM pg_proc p, LATERAL (SELECT ARRAY(SELECT unnest(p.proargtypes)) AS args) a, generate_series(0, CASE WHEN p.provariadic = 0 THEN 0 ELSE 2 END) n
             WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY (functions)
        ), variant AS (
            SELECT f.oid, f.proname, f.prokind, f.args AS given, array_remove(ARRAY[a1.by, a2.by, a3.by], NULL) AS args FROM f
              LEFT JOIN stand_in a1 ON a1.type = f.args[1] LEFT JOIN stand_in a2 ON a2.type = f.args[2] LEFT JOIN stand_in a3 ON a3.type = f.args[3]
             WHERE cardinality(f.args) < 3 OR (a1.by <> f.args[1])::int + (a2.by <> f.args[2])::int + (a3.by <> f.args[3])::int < 2
        )
        SELECT string_agg(traps.function_sql(s.schema, x.oid, x.args), ' ')
          FROM (VALUES ('evil'), ('public')) s (schema), (
            SELECT DISTINCT ON (v.proname, v.args) v.oid, v.args FROM variant v
             WHERE cardinality(v.args) = cardinality(v.given)
             ORDER BY v.proname, v.args, v.args <> v.given, v.prokind) x
    );

    EXECUTE (
        SELECT string_agg(traps.operator_sql(s.schema, x.oid, x.left_type, x.right_type), ' ')
          FROM (VALUES ('evil'), ('public')) s (schema), (
        SELECT DISTINCT ON (o.oprname, l.by, r.by) o.oid, coalesce(l.by, 0) AS left_type, r.by AS right_type
          FROM pg_operator o LEFT JOIN stand_in l ON l.type = o.oprleft JOIN stand_in r ON r.type = o.oprright
         WHERE o.oprnamespace = 'pg_catalog'::regnamespace AND o.oprname = ANY (operators) AND traps.usable(o.oprresult)
           AND (o.oprleft = 0 OR l.type IN (SELECT u.by FROM stand_in u WHERE u.type <> u.by)) AND r.type IN (SELECT u.by FROM stand_in u WHERE u.type <> u.by)
         ORDER BY o.oprname, l.by, r.by, l.by <> o.oprleft OR r.by <> o.oprright) x
    );

    FOR t IN SELECT p.typname AS name, p.typtype AS kind FROM pg_type p
        WHERE p.typnamespace = 'pg_catalog'::regnamespace AND p.typtype IN ('b', 'p') AND p.typelem = 0 AND p.typrelid = 0
    LOOP
        BEGIN
            IF t.kind = 'p' THEN
                EXECUTE format('CREATE TYPE evil.%I AS ()', t.name);
            ELSE
                EXECUTE format('CREATE DOMAIN evil.%I AS pg_catalog.%1$I CHECK (%s)', t.name, traps.mark('type ' || t.name));
            END IF;
        EXCEPTION WHEN OTHERS THEN
            NULL; -- some can be no domain's
        END;
    END LOOP;

    FOR t IN SELECT c.relname AS name FROM pg_class c WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v') LOOP
        BEGIN
            EXECUTE format('CREATE VIEW evil.%I AS SELECT * FROM pg_catalog.%1$I WHERE %s', t.name, traps.mark('relation ' || t.name));
        EXCEPTION WHEN OTHERS THEN
            NULL; -- some have columns that no view can have
        END;
    END LOOP;

    EXECUTE 'CREATE COLLATION evil."C" FROM pg_catalog."C"';

    -- Casts are looked up by their types alone, wherever these are.
    CREATE TYPE public.mood AS ENUM ('good', 'bad');
    FOR t IN SELECT unnest('{text,name,varchar,bpchar,int8,oid}'::regtype[]) AS target LOOP
        EXECUTE format('CREATE FUNCTION traps.%I(public.mood) RETURNS %s LANGUAGE plpgsql AS %L', 'cast to ' || t.target, t.target,
            format('BEGIN PERFORM %s; RETURN 1; END', traps.mark('cast to ' || t.target)));
        EXECUTE format('CREATE CAST (public.mood AS %s) WITH FUNCTION traps.%I(public.mood) AS IMPLICIT', t.target, 'cast to ' || t.target);
    END LOOP;
END $$;
