-- The objects that are made for indexes and models. Table hashindex.object has a row for each, with a hash of it as it was made, so that
-- what was dropped or changed since is found. Objects are named there by their bare names in schema hashindex, functions with the bare
-- types of their arguments: after a restore oids differ, and pgvector may move to another schema.

GRANT SELECT ON hashindex.object TO PUBLIC;

-- Functions, tables and types of schema hashindex, and triggers that call its functions, by the names that rows of hashindex.object have.
CREATE OR REPLACE FUNCTION hashindex._existing() RETURNS TABLE (kind text, name text, id oid, object text)
LANGUAGE sql STABLE PARALLEL UNSAFE
BEGIN ATOMIC
    SELECT o.* FROM pg_namespace n CROSS JOIN LATERAL (
        SELECT 'function', format('%s(%s)', p.proname, regexp_replace(oidvectortypes(p.proargtypes), '[^ ,]+[.]', '', 'g')), p.oid, p.oid::regprocedure::text
        FROM pg_proc p WHERE p.pronamespace = n.oid
        UNION ALL
        SELECT 'table', c.relname::text, c.oid, c.oid::regclass::text FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind = 'r'
        UNION ALL
        SELECT 'type', c.relname::text, c.reltype, c.reltype::regtype::text FROM pg_class c WHERE c.relnamespace = n.oid AND c.relkind = 'c'
        UNION ALL
        SELECT 'trigger', t.tgname::text, t.oid, format('%I ON %s', t.tgname, t.tgrelid::regclass)
        FROM pg_trigger t JOIN pg_proc p ON p.oid = t.tgfoid WHERE p.pronamespace = n.oid
          -- Anybody can make a trigger by other functions.
          AND p.proname ~ '^sync_'
    ) o WHERE n.nspname = 'hashindex';
END;

-- Hash of an object as it is: of the statement that makes a function, of what a trigger does, and of the columns and the primary key of a table or type.
CREATE OR REPLACE FUNCTION hashindex._hash_of(kind text, id oid) RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
SET quote_all_identifiers = off
AS $$
BEGIN
    RETURN md5(CASE kind
        WHEN 'function' THEN pg_get_functiondef(id)
        -- Without its table and columns, which may be renamed.
        WHEN 'trigger' THEN (
            SELECT concat_ws(' ', t.tgtype, t.tgfoid::regproc, t.tgoldtable, t.tgnewtable, t.tgattr, t.tgargs, regexp_replace(
                substring(pg_get_triggerdef(t.oid) FROM ' WHEN .*'), '(old|new)\.("([^"]|"")*"|\w+)', '\1', 'g'
            )) FROM pg_trigger t WHERE t.oid = id
        )
        ELSE (
            SELECT string_agg(format('%s %s %s %s', a.attname, format_type(a.atttypid, a.atttypmod), a.attcollation::regcollation, a.attnotnull), ',' ORDER BY a.attnum)
            FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid WHERE id IN (c.oid, c.reltype) AND a.attnum > 0 AND NOT a.attisdropped
        ) || coalesce((SELECT pg_get_constraintdef(k.oid) FROM pg_constraint k WHERE k.conrelid = id AND k.contype = 'p'), '')
    END);
END
$$;

-- Records an object that was made for an index or a model, or made again.
CREATE OR REPLACE FUNCTION hashindex._record(kind text, id oid, index_name text, model_id bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    INSERT INTO hashindex.object AS o (kind, name, index_name, model_id, hash, server)
    SELECT e.kind, e.name, _record.index_name, _record.model_id, hashindex._hash_of(e.kind, e.id), current_setting('server_version_num')::integer / 10000
    FROM hashindex._existing() e WHERE e.kind = _record.kind AND e.id = _record.id
    ON CONFLICT ON CONSTRAINT object_pkey DO UPDATE SET (index_name, model_id, hash, server) = (excluded.index_name, excluded.model_id, excluded.hash, excluded.server);
END
$$;

-- Drops an object, if it is there, and its row.
CREATE OR REPLACE FUNCTION hashindex._drop(kind text, name text, behaviour text DEFAULT 'RESTRICT') RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    found text;
BEGIN
    FOR found IN SELECT e.object FROM hashindex._existing() e WHERE (e.kind, e.name) = (_drop.kind, _drop.name) LOOP
        EXECUTE format('DROP %s %s %s', kind, found, behaviour);
    END LOOP;
    DELETE FROM hashindex.object o WHERE (o.kind, o.name) = (_drop.kind, _drop.name);
END
$$;

-- Objects of an index but its triggers, in the order in which they can be dropped, and whether one of its sets uses them.
CREATE OR REPLACE FUNCTION hashindex._objects_of(i hashindex.index) RETURNS TABLE (kind text, name text, id oid, object text, in_use boolean)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    SELECT o.kind, o.name, e.id, e.object,
        o.kind <> 'table' OR EXISTS (SELECT FROM hashindex.index_set s WHERE s.index_name = i.name AND starts_with(o.name, hashindex._part_of(s, '')))
    FROM hashindex.object o JOIN hashindex._existing() e USING (kind, name) WHERE o.index_name = i.name AND o.kind <> 'trigger'
    ORDER BY 1, 4;
END
$$;

-- Objects of an index that were dropped or changed since they were made, or a trigger that does not fire: one that is enabled for replicas
-- only does not. Where the server was upgraded since, hashes are not compared until they are taken again.
CREATE OR REPLACE FUNCTION hashindex._object_faults(i hashindex.index, kinds text[]) RETURNS TABLE (kind text, name text, fault text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    SELECT o.kind, o.name, f.fault
    FROM hashindex.object o LEFT JOIN hashindex._existing() e ON (e.kind, e.name) = (o.kind, o.name) AND (
        o.kind <> 'trigger' OR EXISTS (SELECT FROM pg_trigger t WHERE t.oid = e.id AND t.tgrelid = to_regclass(format('%I.%I', i.schema_name, i.table_name)))
    ) CROSS JOIN LATERAL (SELECT CASE
        WHEN e.id IS NULL THEN 'is missing'
        WHEN o.kind = 'trigger' AND (SELECT t.tgenabled NOT IN ('O', 'A') FROM pg_trigger t WHERE t.oid = e.id) THEN 'is disabled'
        WHEN o.server = current_setting('server_version_num')::integer / 10000 AND o.hash <> hashindex._hash_of(e.kind, e.id) THEN 'was changed'
    END) f(fault)
    WHERE o.index_name = i.name AND o.kind = ANY (kinds) AND f.fault IS NOT NULL
    UNION ALL
    -- Table hashindex.object was restored without its rows.
    SELECT w.kind, w.name, 'is missing' FROM (
        SELECT 'function' AS kind, 'search_' || i.name AS name
        UNION ALL SELECT 'table', hashindex._part_of(s, 'codes') FROM hashindex.index_set s WHERE s.index_name = i.name AND s.encoded IS NOT NULL AND s.state <> 'building'
        UNION ALL SELECT 'trigger', n FROM unnest(hashindex._trigger_names(i)) n
        WHERE EXISTS (SELECT FROM hashindex.index_set s WHERE s.index_name = i.name AND s.encoded IS NOT NULL AND s.state <> 'building')
    ) w
    WHERE w.kind = ANY (kinds) AND NOT EXISTS (SELECT FROM hashindex.object o WHERE o.index_name = i.name AND o.kind = w.kind);
END
$$;

-- Faults of the codes of models that a table has in indexes and generated columns, and a remedy: an index or a column of another length than
-- the model's, an index of pgvector by another distance than Hamming's, and functions that were dropped or changed since they were made.
-- Called by quality/doctor_catalog.py and health.
CREATE OR REPLACE FUNCTION hashindex._code_faults(base regclass) RETURNS TABLE (fault text, remedy text)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    WITH made AS (
        SELECT o.model_id, o.name, e.id, m.n_bits, format('%s:%s', m.name, m.version) AS model,
               CASE WHEN e.id IS NULL THEN 'is missing' WHEN o.server = current_setting('server_version_num')::integer / 10000
                    AND o.hash <> hashindex._hash_of(e.kind, e.id) THEN 'was changed' END AS changed
        FROM hashindex.object o LEFT JOIN hashindex._existing() e USING (kind, name) JOIN hashindex.model m ON m.id = o.model_id WHERE o.kind = 'function'
    ),
    held AS (
        -- Expressions of indexes. One index may have several.
        SELECT f.*, a.attrelid, a.attnum, a.atttypmod, format('index %s', a.attrelid::regclass) AS holder, format('DROP INDEX CONCURRENTLY %s', a.attrelid::regclass) AS goes
        FROM made f JOIN pg_depend d ON (d.refclassid, d.refobjid, d.classid) = ('pg_proc'::regclass, f.id, 'pg_class'::regclass)
        JOIN pg_index x ON x.indexrelid = d.objid JOIN pg_attribute a ON a.attrelid = x.indexrelid AND x.indkey[a.attnum - 1] = 0
        WHERE x.indrelid = base AND a.atttypid = 'bit'::regtype
          AND strpos(pg_get_indexdef(a.attrelid, a.attnum, false), (SELECT quote_ident(p.proname) FROM pg_proc p WHERE p.oid = f.id) || '(') > 0
        UNION ALL
        SELECT f.*, a.attrelid, a.attnum, a.atttypmod, format('column %I', a.attname), format('ALTER TABLE %s DROP COLUMN %I', base, a.attname)
        FROM made f JOIN pg_depend d ON (d.refclassid, d.refobjid, d.classid) = ('pg_proc'::regclass, f.id, 'pg_attrdef'::regclass)
        JOIN pg_attrdef k ON k.oid = d.objid JOIN pg_attribute a ON a.attrelid = k.adrelid AND a.attnum = k.adnum
        WHERE k.adrelid = base AND a.attgenerated <> '' AND a.atttypid = 'bit'::regtype
    )
    SELECT format('%s has bit(%s), and codes of model %s have %s bits', h.holder, h.atttypmod, h.model, h.n_bits), format('%s; then make it with ::bit(%s)', h.goes, h.n_bits)
    FROM held h WHERE h.atttypmod <> -1 AND h.atttypmod <> h.n_bits
    UNION ALL
    SELECT format('index %s ranks codes of model %s by %s', x.indexrelid::regclass, h.model, c.opcname),
           format('DROP INDEX CONCURRENTLY %s; then make it with {ext}.bit_hamming_ops', x.indexrelid::regclass)
    FROM held h JOIN pg_index x ON x.indrelid = base CROSS JOIN LATERAL unnest(x.indkey::smallint[], x.indclass::oid[]) WITH ORDINALITY k(attnum, opclass, n)
    JOIN pg_opclass c ON c.oid = k.opclass JOIN pg_am am ON am.oid = c.opcmethod
    WHERE am.amname IN ('hnsw', 'ivfflat') AND c.opcname !~ '^bit_hamming_'
      AND (h.attrelid, h.attnum) IN ((x.indexrelid, k.n), (base, k.attnum))
    UNION ALL
    SELECT format('function hashindex.%s of model %s %s', f.name, f.model, f.changed),
           'SELECT hashindex.rebuild_functions(); then REINDEX what was written by it'
    FROM made f WHERE f.changed IS NOT NULL AND f.model_id IN (
        SELECT h.model_id FROM held h UNION ALL
        SELECT s.model_id FROM hashindex.index_set s JOIN hashindex.index i ON i.name = s.index_name WHERE hashindex._oid_of(i.schema_name, i.table_name) = base
    )
    ORDER BY 1;
END
$$;

-- Makes an object one of an index, as soon as it is there. The administrator owns it: a member of his, or a superuser, creates it as itself.
-- A table loses what default privileges gave to other roles.
CREATE OR REPLACE FUNCTION hashindex._adopt(i hashindex.index, made regclass, description text) RETURNS void
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    administrator regrole := hashindex._administrator();
    others text := string_agg(DISTINCT quote_ident(g.role), ', ') FROM hashindex._grants_on(made) g WHERE g.grantee <> administrator;
    kind text;
    id oid;
BEGIN
    -- A type has a row of pg_class too, without rights.
    SELECT v.* INTO STRICT kind, id FROM pg_class c CROSS JOIN LATERAL (SELECT 'type', c.reltype WHERE c.relkind = 'c' UNION ALL SELECT 'table', c.oid WHERE c.relkind = 'r') v
    WHERE c.oid = made;
    EXECUTE format('ALTER %s %s OWNER TO %s', kind, made, administrator);
    IF others IS NOT NULL THEN
        EXECUTE format('REVOKE ALL ON %s FROM %s', made, others);
    END IF;
    EXECUTE format('COMMENT ON %s %s IS %L', kind, made, format('index %s: %s', i.name, description));
    PERFORM hashindex._record(kind, id, i.name);
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
    s hashindex.index_set;
    set_id bigint;
BEGIN
    IF hashindex._has_lists(i) THEN
        -- Not by DROP TRIGGER, which only the owner of the table may run.
        PERFORM hashindex._drop('function', hashindex._sync_name(i.name) || '()', 'CASCADE');
    ELSE
        PERFORM hashindex._go_in_sequence(hashindex._base_of(i));
    END IF;
    -- The row before the sets: a swap that we waited for has changed them.
    PERFORM FROM hashindex.index x WHERE x.name = i.name FOR UPDATE;
    FOR set_id IN SELECT x.id FROM hashindex.index_set x WHERE x.index_name = i.name LOOP
        -- As it is now: what one set leaves, another keeps.
        DELETE FROM hashindex.index_set x WHERE x.id = set_id RETURNING x.* INTO s;
        PERFORM hashindex._drop_kept(i, s);
    END LOOP;
    PERFORM hashindex._drop(o.kind, o.name) FROM hashindex._objects_of(i) o;
    DELETE FROM hashindex.object o WHERE o.index_name = i.name;
    DELETE FROM hashindex.claim c WHERE c.name = i.name AND NOT hashindex._holds(c.pid, c.lock);
    DELETE FROM hashindex.index x WHERE x.name = i.name;
END
$$;

COMMENT ON FUNCTION hashindex.drop_index(text) IS 'drops an index with its set and its search function; the table itself, models, and an index of pgvector''s that was there before stay';

CREATE OR REPLACE FUNCTION hashindex.orphans() RETURNS TABLE (kind text, object text, statement text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    WITH orphan AS (
        SELECT e.* FROM hashindex._existing() e LEFT JOIN hashindex.object o USING (kind, name)
        LEFT JOIN LATERAL (
            SELECT c.relname, array_agg(a.attname::text) AS columns FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
            WHERE e.kind <> 'function' AND e.id IN (c.oid, c.reltype) AND a.attnum > 0 AND NOT a.attisdropped GROUP BY c.oid
        ) r ON o.name IS NULL
        WHERE e.kind <> 'trigger' AND CASE
            WHEN o.index_name IS NOT NULL THEN NOT EXISTS (SELECT FROM hashindex.index i WHERE i.name = o.index_name)
            -- An object that no row names, and that is like an object of an index, was left by a restore of a part of a dump. A repair records it, if an index
            -- of that name is there.
            ELSE o.name IS NULL AND CASE e.kind
                WHEN 'function' THEN EXISTS (
                    SELECT FROM pg_proc p WHERE p.oid = e.id AND (
                        p.proname ~ '^search_.' AND p.proargtypes[0] = 'anycompatible'::regtype
                        OR p.proname ~ '^sync_.' AND p.prorettype = 'trigger'::regtype AND p.prosecdef
                        OR p.proname ~ '^refresh_[0-9]+$' AND p.proargnames[1] = 'keys'
                    )
                )
                WHEN 'type' THEN r.relname ~ '._key$' AND 'id_1' = ANY (r.columns)
                ELSE r.relname ~ '^set_[0-9]+_(codes|landmarks|staged|ranges|log)$'
            END AND NOT EXISTS (
                SELECT FROM hashindex.index i LEFT JOIN hashindex.index_set s ON s.index_name = i.name
                WHERE e.name = hashindex._sync_name(i.name) || '()' OR starts_with(e.name, hashindex._part_of(s, ''))
                   OR regexp_replace(e.name, '^[a-z]+_(.+)[(].*$|_key$', '\1') IN (i.name, s.id::text, '~' || s.id)
            ) END
    ),
    listed (place, kind, object) AS (
        SELECT 1, e.kind, e.object FROM orphan f JOIN pg_trigger t ON f.kind = 'function' AND t.tgfoid = f.id JOIN hashindex._existing() e ON e.id = t.oid
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
    DELETE FROM hashindex.object o WHERE o.index_name NOT IN (SELECT i.name FROM hashindex.index i);
END
$$;

COMMENT ON FUNCTION hashindex.drop_orphans() IS 'drops objects of indexes that no longer exist; returns their names';
