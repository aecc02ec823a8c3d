-- The objects that are made for an index in schema hashindex, and how they go: one by one with the index, and as orphans where the index
-- went without them. PostgreSQL's catalogs are the list of them, and no table beside these: oids differ after a restore, and a dump of the
-- schema alone brings the objects without any row. An index finds its objects by their names; a mark in its comment tells one without an index.

-- Objects of an index, in the order in which they can be dropped, and whether it uses them: a table that is not in use was left by a run
-- that was cut off, or by a former build. A function of pg_hashindex may have the same name as one of an index's (search_..., for example);
-- their arguments differ.
CREATE OR REPLACE FUNCTION hashindex._objects_of(i hashindex.index) RETURNS TABLE (kind text, id oid, object text, in_use boolean)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    SELECT 'function', p.oid, p.oid::regprocedure::text, true FROM pg_proc p
    WHERE p.pronamespace = 'hashindex'::regnamespace AND (
        p.proname IN ('candidates_' || i.name, 'search_' || i.name, 'within_' || i.name) AND p.proargtypes[0] = 'anycompatible'::regtype
        OR p.proname = hashindex._sync_name(i.triggers) AND p.prorettype = 'trigger'::regtype AND NOT hashindex._is_logged_for(i)
        OR p.proname IN ('encode_' || i.storage, 'project_' || i.storage) AND p.proargnames = '{v,or_null}'
        OR p.proname IN (hashindex._refresh_name(i), 'renew_' || i.storage) AND p.proargnames IN ('{keys}', '{keys,rows}')
        OR p.proname = 'nearest_' || i.storage AND p.proargnames[1] = 'number'
    )
    UNION ALL
    SELECT 'table', c.oid, c.oid::regclass::text, coalesce(
        c.relname IN (i.code_table, i.landmark_table, i.storage || '_shards')
        OR i.next_generation IS NOT NULL AND c.relname IN (
            i.storage || '_codes_' || i.next_generation, i.storage || '_landmarks_' || i.next_generation,
            i.storage || '_staged', i.storage || '_ranges', i.storage || '_touched'
        ) OR c.relname = i.storage || '_touched' AND hashindex._is_logged_for(i), false
    )
    FROM pg_class c
    WHERE c.relnamespace = 'hashindex'::regnamespace AND c.relkind = 'r' AND starts_with(c.relname, i.storage || '_')
      AND substr(c.relname, length(i.storage) + 2) ~ '^(codes|(codes|landmarks)_[0-9]+|staged|ranges|touched|shards)$'
    UNION ALL
    SELECT 'type', t.oid, t.oid::regtype::text, true FROM pg_type t
    WHERE t.typnamespace = 'hashindex'::regnamespace AND t.typname = i.triggers || '_key' AND cardinality(i.key_columns) > 1 AND NOT hashindex._is_logged_for(i)
    ORDER BY 1, 3;
END
$$;

-- Makes an object one of an index, as soon as it is there. The administrator owns it: a member of his, or a superuser, creates it as itself.
-- A table loses what default privileges gave to other roles. The comment says what it is, with the mark of what is made for an index.
CREATE OR REPLACE FUNCTION hashindex._adopt(i hashindex.index, made regclass, description text) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    administrator regrole := hashindex._administrator();
    others text := string_agg(DISTINCT quote_ident(g.role), ', ') FROM hashindex._grants_on(made) g WHERE g.grantee <> administrator;
    kind text;
BEGIN
    -- A type has a row of pg_class too, without rights.
    SELECT CASE c.relkind WHEN 'c' THEN 'TYPE' ELSE 'TABLE' END INTO STRICT kind FROM pg_class c WHERE c.oid = made;
    EXECUTE format('ALTER %s %s OWNER TO %s', kind, made, administrator);
    IF others IS NOT NULL THEN
        EXECUTE format('REVOKE ALL ON %s FROM %s', made, others);
    END IF;
    EXECUTE format('COMMENT ON %s %s IS %L', kind, made, format('index %s: %s', i.name, description));
END
$$;

CREATE OR REPLACE FUNCTION hashindex.drop_index(name text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
-- PostgreSQL would say which triggers it drops.
SET client_min_messages = warning
AS $$
DECLARE
    i hashindex.index := hashindex._require(drop_index.name, administers => true, reads => false);
    shares boolean := hashindex._is_logged_for(i);
    made record;
BEGIN
    PERFORM hashindex._allow_shard_changes();
    IF shares THEN
        -- Codes first: a session that has searched by them may then want to write, and would wait for a lock on the table. Writers hold the log.
        FOR made IN SELECT o.object FROM hashindex._objects_of(i) o WHERE o.kind = 'table' AND o.id <> to_regclass(format('hashindex.%I', i.storage || '_touched')) LOOP
            EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', made.object);
        END LOOP;
        PERFORM hashindex._lock_against_writers(i);
    ELSE
        -- Not by DROP TRIGGER, which only the owner of the table may run.
        EXECUTE format('DROP FUNCTION IF EXISTS hashindex.%I() CASCADE', hashindex._sync_name(i.triggers));
    END IF;
    -- The codes of other models, from swaps, are dropped with it.
    PERFORM hashindex.drop_index(x.name) FROM hashindex.index x WHERE x.swap_of = i.name;
    -- While we waited for writers, a swap or rollback may have given these codes to another index.
    IF (SELECT x.storage FROM hashindex.index x WHERE x.name = i.name FOR UPDATE) IS DISTINCT FROM i.storage THEN
        RAISE EXCEPTION 'index "%" was swapped meanwhile', i.name USING ERRCODE = 'serialization_failure', HINT = 'Run it again.';
    END IF;
    FOR made IN SELECT o.kind, o.object FROM hashindex._objects_of(i) o LOOP
        -- Citus drops a shard that it split or moved only later, and the shard keeps its triggers until then.
        EXECUTE format('DROP %s %s %s', made.kind, made.object, CASE WHEN made.kind = 'function' AND hashindex._is_distributed(i) THEN 'CASCADE' END);
    END LOOP;
    IF to_regclass('hashindex.node_index') IS NOT NULL THEN
        EXECUTE 'DELETE FROM hashindex.node_index n WHERE n.name = $1' USING i.name;
    END IF;
    DELETE FROM hashindex.claim c WHERE c.name = i.name AND NOT hashindex._holds(c.pid, c.lock);
    DELETE FROM hashindex.index x WHERE x.name = i.name;
    IF shares AND to_regproc('hashindex.' || quote_ident(hashindex._sync_name(i.triggers))) IS NOT NULL THEN
        PERFORM hashindex._create_functions(x) FROM hashindex.index x WHERE x.name = i.swap_of;
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.drop_index(text) IS 'drops an index with its codes, triggers and search function; the table itself stays';

CREATE OR REPLACE FUNCTION hashindex.orphans() RETURNS TABLE (kind text, object text, statement text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    WITH marked AS (
        SELECT o.kind, d.objoid AS id, o.object
        FROM pg_description d CROSS JOIN LATERAL (VALUES
            ('pg_proc'::regclass, 'function', d.objoid::regprocedure::text), ('pg_class'::regclass, 'table', d.objoid::regclass::text),
            ('pg_type'::regclass, 'type', d.objoid::regtype::text)
        ) o(class, kind, object)
        WHERE d.classoid = o.class AND d.objsubid = 0 AND d.description LIKE 'index %: %' AND starts_with(o.object, 'hashindex.')
    ),
    orphan AS (
        SELECT m.* FROM marked m
        WHERE NOT EXISTS (SELECT FROM hashindex.index i, hashindex._objects_of(i) o WHERE (o.kind, o.id) = (m.kind, m.id))
    ),
    listed (place, kind, object) AS (
        SELECT 1, 'trigger', format('%I ON %s', t.tgname, t.tgrelid::regclass)
        FROM orphan f JOIN pg_trigger t ON f.kind = 'function' AND t.tgfoid = f.id WHERE NOT hashindex._is_shard(t.tgrelid)
        UNION ALL
        SELECT 2, f.kind, f.object FROM orphan f
    )
    SELECT l.kind, l.object, format('DROP %s %s', l.kind, l.object) FROM listed l ORDER BY l.place, l.kind, l.object;
END
$$;

COMMENT ON FUNCTION hashindex.orphans() IS
    'objects of indexes that no longer exist, with the statements that drop them';

CREATE OR REPLACE FUNCTION hashindex.drop_orphans() RETURNS TABLE (kind text, object text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    orphan record;
BEGIN
    PERFORM hashindex._check_administrator();
    -- The lock keeps others from creating an index meanwhile.
    LOCK TABLE hashindex.index IN SHARE ROW EXCLUSIVE MODE;
    FOR orphan IN SELECT o.* FROM hashindex.orphans() o LOOP
        EXECUTE orphan.statement;
        kind := orphan.kind;
        object := orphan.object;
        RETURN NEXT;
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex.drop_orphans() IS 'drops objects of indexes that no longer exist; returns their names';
