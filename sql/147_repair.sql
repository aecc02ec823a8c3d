-- Repairs an index: the functions behind pg-hashindex index repair.

-- That the column of the tenants is gone, or no longer has the type and collation of the tenants beside the codes; or NULL.
-- Called by operations/repairs.py.
CREATE OR REPLACE FUNCTION hashindex._tenant_fault(i hashindex.index, s hashindex.index_set) RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := to_regclass(format('%I.%I', i.schema_name, i.table_name));
BEGIN
    RETURN CASE
        WHEN a.attname IS NULL THEN format('tenant column "%s" of %s is not there any more', i.tenant_column, base)
        WHEN (a.atttypid, a.attcollation) IS DISTINCT FROM (c.atttypid, c.attcollation) THEN
            format('tenant column "%s" of %s is of type %s, and was of %s', i.tenant_column, base, format_type(a.atttypid, -1), format_type(c.atttypid, -1))
    END
    FROM pg_class t LEFT JOIN pg_attribute a ON a.attrelid = base AND a.attname = i.tenant_column AND NOT a.attisdropped
    LEFT JOIN pg_attribute c ON c.attrelid = t.oid AND c.attname = 'tenant' AND NOT c.attisdropped
    WHERE t.oid = hashindex._table_of(s, 'codes') AND i.tenant_column IS NOT NULL;
END
$$;

-- Faults of the table, column, key, tenants and codes of a set of lists, with advice, and whether a repair can fix them.
CREATE OR REPLACE FUNCTION hashindex._table_faults(i hashindex.index, s hashindex.index_set)
RETURNS TABLE (fault text, advice text, repairable boolean)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET extra_float_digits = 1
SET quote_all_identifiers = off
SET standard_conforming_strings = on
AS $$
DECLARE
    -- Not by the view, which hides models from those who may not read the codes.
    dimension integer := m.dimension FROM hashindex.model m WHERE m.id = s.model_id;
    base regclass := hashindex._oid_of(i.schema_name, i.table_name);
    codes regclass := hashindex._table_of(s, 'codes');
    named text := i.name;
    rebind text := 'if it was renamed: pg-hashindex index repair ' || named;
    -- A set beside the one in use is given up alone.
    without text := CASE WHEN s.state IN ('former', 'ready') THEN 'pg-hashindex index prune ' || named WHEN s.state = 'building' THEN format('pg-hashindex index repair %s --undo', named) END;
    again text := coalesce(without, format('restore what was, or run pg-hashindex index drop %s and create it again', named));
    columns text[] := ARRAY(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = base AND a.attnum > 0 AND NOT a.attisdropped);
    vector_schema text := (SELECT e.extnamespace::regnamespace::text FROM pg_extension e WHERE e.extname = 'vector');
    wrong text;
    key record;
    retyped text;
BEGIN
    IF vector_schema <> '{ext}' THEN
        RETURN QUERY SELECT format('pgvector is in schema %s now, and was in {ext}: writes and searches fail', vector_schema),
            'pg-hashindex schema upgrade', false;
        RETURN;
    END IF;
    IF base IS NULL THEN
        RETURN QUERY SELECT format('table %I.%I is not there any more', i.schema_name, i.table_name),
            format('%s --table TABLE; if it was dropped: pg-hashindex index drop %s', rebind, named), false;
        RETURN;
    END IF;
    BEGIN
        IF i.column_name = ANY (columns) THEN
            PERFORM hashindex._check_vector_column(base, i.column_name, dimension, false);
        END IF;
        PERFORM hashindex._check_names(base);
        IF i.key_columns <@ columns THEN
            key := hashindex._find_key(base, i.key_columns);
            -- A key with its columns in another order is the same key.
            -- A repair of another set has changed the types of the index, and not those of these codes.
            SELECT string_agg(format('key "%s" of %s is of type %s, and was of %s', o.name, base, n.type, CASE WHEN n.type <> o.type THEN o.type ELSE format_type(c.atttypid, -1) END), '; ' ORDER BY o.place) INTO retyped
            FROM unnest(i.key_columns, i.key_types, hashindex._code_keys(i)) WITH ORDINALITY o(name, type, kept, place) JOIN unnest(key.key_columns, key.key_types) n(name, type) USING (name)
            LEFT JOIN pg_attribute c ON c.attrelid = codes AND c.attname = o.kept AND NOT c.attisdropped
            WHERE n.type <> o.type OR c.atttypid <> hashindex._base_type(n.type)::regtype;
        END IF;
    EXCEPTION WHEN wrong_object_type OR datatype_mismatch OR invalid_table_definition OR invalid_name THEN
        wrong := SQLERRM;
    END;
    RETURN QUERY
    SELECT f.fault, f.advice, f.repairable
    FROM (
        SELECT wrong AS fault, again AS advice, false AS repairable
        UNION ALL
        SELECT hashindex._not_plain(base) || ', so that writes go unseen and searches are exact',
            format('make it a plain table again, then run pg-hashindex index repair %s --full; or pg-hashindex index drop %s', named, named), false
        UNION ALL
        SELECT CASE WHEN i.column_name <> ALL (columns) THEN format('column "%s" of %s is not there any more', i.column_name, base) END,
            coalesce('if it was dropped: ' || without, format('%s --column COLUMN; if it was dropped: pg-hashindex index drop %s', rebind, named)), false
        UNION ALL
        SELECT format('key "%s" of %s is not there any more', k.name, base),
            rebind || ' --id COLUMN' || repeat(',COLUMN', cardinality(i.key_columns) - 1), false
        FROM unnest(i.key_columns) k(name) WHERE k.name <> ALL (columns)
        UNION ALL
        SELECT retyped, 'pg-hashindex index repair ' || named, true
        UNION ALL
        SELECT hashindex._tenant_fault(i, s),
            CASE WHEN i.tenant_column = ANY (columns) THEN 'pg-hashindex index repair ' || named ELSE rebind || ' --tenant COLUMN' END,
            i.tenant_column = ANY (columns)
        UNION ALL
        SELECT CASE
            WHEN codes IS NOT NULL AND NOT hashindex._is_bound(i, s) THEN
                format('%s is not the table that codes are of: it was dropped and recreated, or restored without them', base)
            WHEN codes IS NULL THEN format('code table hashindex.%I is gone', hashindex._part_of(s, 'codes'))
            WHEN EXISTS (SELECT FROM hashindex._object_faults(i, '{table}') f WHERE f.name = hashindex._part_of(s, 'codes')) THEN
                format('a column or the primary key of code table %s was changed since it was made', codes)
        END, 'pg-hashindex index repair ' || named, true
    ) f WHERE f.fault IS NOT NULL;
END
$$;

-- Makes the tables of a set of lists again, without landmarks and codes, if they are missing or not as a search needs them; returns whether they
-- were. Called by operations/repairs.py.
CREATE OR REPLACE FUNCTION hashindex._restore_codes(set_id bigint) RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    kept record := hashindex._lists_of(set_id);
    i hashindex.index := kept.i;
    s hashindex.index_set := kept.s;
    base regclass := hashindex._base_of(i);
BEGIN
    PERFORM hashindex._require(i.name, administers => true);
    IF s.state = 'building' OR NOT EXISTS (SELECT FROM hashindex._table_faults(i, s) f WHERE f.repairable) THEN
        RETURN false;
    END IF;
    PERFORM hashindex._lock_against_writers(i);
    PERFORM hashindex._check_tenant(i, base);
    -- Arguments and answers have the types of columns, which may be others now. All sets share the type of the key.
    PERFORM hashindex._drop(o.kind, o.name) FROM hashindex._objects_of(i) o LEFT JOIN pg_proc p ON o.kind = 'function' AND p.oid = o.id
    WHERE o.kind <> 'table' AND (p.prorettype = 'trigger'::regtype) IS NOT TRUE;
    i.key_types := t.types FROM hashindex._key_types(base, i.key_columns) t;
    UPDATE hashindex.index x SET key_types = i.key_types WHERE x.name = i.name;
    -- The set stays the one that it is: built again without codes, which are encoded next.
    UPDATE hashindex.index_set x SET state = 'building' WHERE x.id = s.id;
    PERFORM hashindex._begin_lists(s.id);
    PERFORM hashindex._order_lists(s.id, NULL);
    PERFORM hashindex._drop('table', hashindex._part_of(s, part)) FROM unnest('{staged,ranges,log}'::text[]) part;
    UPDATE hashindex.index_set x SET (state, encoded) = (s.state, false) WHERE x.id = s.id RETURNING x.* INTO s;
    IF s.state <> 'used' THEN
        PERFORM hashindex._create_log(i, s);
    END IF;
    PERFORM hashindex._create_functions(x) FROM hashindex.index x WHERE x.name = i.name;
    -- The rights were lost with the codes.
    PERFORM hashindex._set_readers(i, s);
    RETURN true;
END
$$;

-- Tables of a set of lists that are LOGGED where its table is UNLOGGED, or the other way round.
CREATE OR REPLACE FUNCTION hashindex._logged_otherwise(i hashindex.index, s hashindex.index_set) RETURNS SETOF regclass
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    unlogged boolean := hashindex._logging(hashindex._base_of(i)) = 'UNLOGGED';
BEGIN
    RETURN QUERY
    SELECT c.oid::regclass FROM pg_class c
    WHERE c.oid IN (hashindex._table_of(s, 'codes'), hashindex._table_of(s, 'landmarks'), CASE WHEN s.state <> 'building' THEN hashindex._table_of(s, 'log') END)
      AND (c.relpersistence = 'u') <> unlogged;
END
$$;

-- Faults of the landmarks of a set of lists; a repair has them built again.
CREATE OR REPLACE FUNCTION hashindex._landmark_faults(i hashindex.index, s hashindex.index_set) RETURNS SETOF text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := m FROM hashindex.readable_model m WHERE m.id = s.model_id;
    codes regclass := hashindex._table_of(s, 'codes');
    landmarks regclass := hashindex._table_of(s, 'landmarks');
    emptied boolean;
BEGIN
    IF landmarks IS NULL THEN
        RETURN NEXT 'the landmarks are gone';
    ELSIF s.trained_rows IS NOT NULL THEN
        -- A crash empties unlogged landmarks. An empty table has none, and neither have small tenants.
        EXECUTE format(
            CASE WHEN i.tenant_column IS NULL THEN
                'SELECT NOT EXISTS (SELECT FROM %s) AND (EXISTS (SELECT FROM %s) OR EXISTS (SELECT FROM %I.%I b WHERE b.%I IS NOT NULL))'
            ELSE 'SELECT NOT EXISTS (SELECT FROM %s) AND EXISTS (SELECT FROM %s c WHERE c.landmark IS NOT NULL)' END,
            landmarks, codes, i.schema_name, i.table_name, i.column_name
        ) INTO emptied;
        RETURN QUERY SELECT f.fault FROM (SELECT CASE
            WHEN emptied THEN 'there are no landmarks: searches read all codes'
            WHEN i.tenant_column IS NOT NULL AND NOT EXISTS (
                SELECT FROM pg_index x JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
                WHERE x.indrelid = landmarks AND a.attname = 'tenant' AND x.indisvalid
            ) THEN 'the b-tree over the tenants of landmarks is gone: searches read all landmarks'
            WHEN i.tenant_column IS NULL AND coalesce(hashindex._list_projections(used, i.metric), used.dimension) <= 4000 AND NOT EXISTS (
                SELECT FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid JOIN pg_am a ON a.oid = c.relam
                WHERE x.indrelid = landmarks AND a.amname = 'hnsw' AND x.indisvalid
            ) THEN 'the HNSW over landmarks is gone: searches compare all of them'
            WHEN NOT EXISTS (
                SELECT FROM pg_index x JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
                WHERE x.indrelid = codes AND a.attname = 'landmark' AND x.indisvalid
            ) THEN 'the b-tree over the landmarks of codes is gone: searches read all codes'
        END) f(fault) WHERE f.fault IS NOT NULL;
    END IF;
END
$$;

-- Makes the parts of a set of lists and of its index again that were dropped or changed: functions, triggers and types are made, disabled
-- triggers enabled; triggers of another table, and what interrupted runs left, are dropped. Landmarks that are not whole are removed: searches rank
-- all codes until a rebalance. Returns what was done. Called by operations/repairs.py.
CREATE OR REPLACE FUNCTION hashindex._restore_parts(set_id bigint) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    kept record := hashindex._locked_lists(set_id);
    i hashindex.index := kept.i;
    s hashindex.index_set := kept.s;
    base regclass := hashindex._base_of(i);
    codes regclass := hashindex._table_of(s, 'codes');
    logging text := hashindex._logging(base);
    part text;
    found record;
    faults text[];
BEGIN
    PERFORM hashindex._require(i.name, administers => true);
    PERFORM hashindex._bind(s.id);
    FOR part IN SELECT t FROM hashindex._logged_otherwise(i, s) t LOOP
        EXECUTE format('ALTER TABLE %s SET %s', part, logging);
        RETURN NEXT format('made %s %s, as %s is', part, logging, base);
    END LOOP;
    IF s.state <> 'building' AND EXISTS (SELECT FROM hashindex._landmark_faults(i, s)) THEN
        RETURN NEXT 'removed incomplete landmarks';
        UPDATE hashindex.index_set x SET trained_rows = NULL, generation = x.generation + 1 WHERE x.id = s.id RETURNING x.* INTO s;
        EXECUTE format('UPDATE %s SET landmark = NULL WHERE landmark IS NOT NULL', codes);
        PERFORM hashindex._drop('table', hashindex._part_of(s, 'landmarks'));
        PERFORM hashindex._create_landmarks(i, s);
        PERFORM hashindex._set_readers(i, s, s);
        PERFORM hashindex._create_functions(x) FROM hashindex.index x WHERE x.name = i.name;
    END IF;
    FOR found IN SELECT o.name, o.object FROM hashindex._objects_of(i) o WHERE NOT o.in_use LOOP
        PERFORM hashindex._drop('table', found.name);
        RETURN NEXT format('dropped table %s, which a run had left', found.object);
    END LOOP;
    -- REINDEX CONCURRENTLY that was cut off leaves an INVALID index.
    FOR part IN SELECT x.indexrelid::regclass::text FROM pg_index x WHERE NOT x.indisvalid AND x.indrelid = codes ORDER BY 1 LOOP
        EXECUTE 'DROP INDEX ' || part;
        RETURN NEXT format('dropped index %s, which a run had left', part);
    END LOOP;

    -- Hashes that another major version of PostgreSQL gave are taken again.
    PERFORM hashindex._record(o.kind, e.id, o.index_name) FROM hashindex.object o JOIN hashindex._existing() e USING (kind, name)
    WHERE o.index_name = i.name AND o.server <> current_setting('server_version_num')::integer / 10000;
    faults := ARRAY(SELECT f.fault FROM hashindex._object_faults(i, '{trigger}') f);
    IF EXISTS (SELECT FROM hashindex._object_faults(i, '{function,type}')) THEN
        PERFORM hashindex._create_functions(x) FROM hashindex.index x WHERE x.name = i.name;
        RETURN NEXT 'recreated the functions';
    END IF;
    FOR found IN
        SELECT t.tgname, t.tgrelid::regclass AS relation FROM hashindex._triggers_of(i) t
        WHERE t.tgrelid <> base ORDER BY t.tgrelid::regclass::text, t.tgname
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', found.tgname, found.relation);
        RETURN NEXT format('dropped trigger %I on %s: not the table of the index', found.tgname, found.relation);
    END LOOP;
    FOR part IN SELECT f.name FROM hashindex._object_faults(i, '{trigger}') f WHERE f.fault = 'is disabled' LOOP
        EXECUTE format('ALTER TABLE %s ENABLE TRIGGER %I', base, part);
    END LOOP;
    PERFORM hashindex._create_triggers(i, base);
    IF 'is disabled' = ANY (faults) THEN
        RETURN NEXT format('enabled triggers on %s', base);
    END IF;
    IF faults && '{is missing,was changed}' THEN
        RETURN NEXT format('created missing triggers on %s', base);
    END IF;
    -- Writes went unseen.
    UPDATE hashindex.index_set x SET unverified = true WHERE x.index_name = i.name AND x.unverified IS NOT NULL AND faults <> '{}';
END
$$;
