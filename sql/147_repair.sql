-- Bringing an index back into order: what pg-hashindex index repair is made of. Tables and columns
-- may have been renamed or dropped, triggers disabled, indexes dropped, partitions attached.

-- Without those that are parts of another of them. A partition that was detached keeps its triggers.
CREATE OR REPLACE FUNCTION hashindex._triggered_tables(i hashindex.index)
RETURNS TABLE (schema_name text, table_name text, divided boolean)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN QUERY
    WITH triggered AS (
        SELECT DISTINCT t.tgrelid FROM hashindex._triggers_of(i) t
    )
    SELECT n.nspname::text, c.relname::text, c.relkind = 'p'
    FROM triggered t
    JOIN pg_class c ON c.oid = t.tgrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE NOT EXISTS (
        SELECT FROM pg_partition_ancestors(t.tgrelid) a JOIN triggered above ON above.tgrelid = a.relid
        WHERE a.relid <> t.tgrelid
    )
    ORDER BY 1, 2;
END
$$;

COMMENT ON FUNCTION hashindex._triggered_tables(hashindex.index) IS
    'tables that the triggers of an index stand on, whatever they are called now';

CREATE OR REPLACE FUNCTION hashindex._fitting_columns(i hashindex.index, base regclass)
RETURNS TABLE (part text, column_name text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    used hashindex.model := m FROM hashindex.model m WHERE m.id = i.model_id;
BEGIN
    RETURN QUERY
    SELECT p.part, a.attname::text
    FROM pg_attribute a
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN a.atttypid IN ('{ext}.vector'::regtype, '{ext}.halfvec'::regtype)
                AND a.atttypmod IN (-1, used.dimension) THEN 'vector'
            WHEN a.atttypid = 'bit'::regtype AND a.atttypmod = used.n_bits THEN 'code'
        END AS part
    ) p
    WHERE a.attrelid = base AND a.attnum > 0 AND NOT a.attisdropped AND p.part IS NOT NULL
    UNION ALL
    SELECT 'key', k.id_column
    FROM (
        SELECT DISTINCT a.attname::text AS name
        FROM pg_index x
        JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
        JOIN pg_type t ON t.oid = a.atttypid
        WHERE x.indrelid = base AND x.indisunique AND x.indisvalid AND x.indimmediate
          AND x.indnkeyatts = 1 AND x.indpred IS NULL AND x.indexprs IS NULL AND a.attnotnull
          AND t.typcategory NOT IN ('A', 'C')
    ) u
    CROSS JOIN LATERAL hashindex._find_key(base, u.name) k
    WHERE k.id_type = i.id_type
    ORDER BY 1, 2;
END
$$;

COMMENT ON FUNCTION hashindex._fitting_columns(hashindex.index, regclass) IS
    'columns of a table that could be the vector, the key or the code of an index, by their types';

-- Another type of key, or another dimension, is another index.
CREATE OR REPLACE FUNCTION hashindex._check_binding(i hashindex.index)
RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    key record;
BEGIN
    PERFORM hashindex._check_names(base, i.code_column);
    PERFORM hashindex._check_vector_column(base, i.column_name, m.dimension)
    FROM hashindex.model m WHERE m.id = i.model_id;
    PERFORM hashindex._check_names(base, i.code_column);
    key := hashindex._find_key(base, i.id_column);
    IF key.id_type <> i.id_type THEN
        RAISE EXCEPTION 'key "%" of % is of type % now, index "%" was made for %',
            i.id_column, base, key.id_type, i.name, i.id_type
            USING ERRCODE = 'datatype_mismatch', HINT = 'Drop the index, and make it anew.';
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex._check_binding(hashindex.index) IS
    'refuses an index whose table or columns can no longer be what it was made for';

CREATE OR REPLACE FUNCTION hashindex._rebind(
    name text, base regclass, column_name text, id_column text, code_column text
)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index;
BEGIN
    i := hashindex._locked_index(_rebind.name);
    SELECT n.nspname, c.relname INTO STRICT i.schema_name, i.table_name
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = _rebind.base;
    i.column_name := _rebind.column_name;
    i.id_column := _rebind.id_column;
    IF i.layout = 'column' THEN
        i.code_schema := i.schema_name;
        i.code_table := i.table_name;
        i.code_column := _rebind.code_column;
    END IF;
    PERFORM hashindex._check_binding(i);
    UPDATE hashindex.index x
    SET schema_name = i.schema_name, table_name = i.table_name, column_name = i.column_name,
        id_column = i.id_column, code_schema = i.code_schema, code_table = i.code_table,
        code_column = i.code_column
    WHERE x.name = i.name;
    PERFORM hashindex._create_functions(i);
END
$$;

COMMENT ON FUNCTION hashindex._rebind(text, regclass, text, text, text) IS
    'has an index follow its table, vector column, key and code column to other names';

-- What is missing is made; what an empty table of codes lacks, pg-hashindex index encode brings.
CREATE OR REPLACE FUNCTION hashindex._restore_codes(name text)
RETURNS boolean
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(_restore_codes.name);
    codes regclass := to_regclass(format('%I.%I', i.code_schema, i.code_table));
BEGIN
    PERFORM hashindex._allow_shard_changes();
    IF EXISTS (
        SELECT FROM pg_attribute a
        WHERE a.attrelid = codes AND a.attname = i.code_column AND NOT a.attisdropped
    ) THEN
        IF hashindex._is_beside(i) THEN
            RETURN false;
        END IF;
        EXECUTE format('DROP TABLE %s', codes);
    END IF;
    -- Snapshots of now must not take the codes to come for those of all rows.
    i.generation := hashindex._new_generation(i.generation);
    IF i.layout = 'table' THEN
        -- What was built on the codes is gone with them.
        i.building := CASE WHEN i.access <> 'scan' THEN coalesce(i.building, i.access) ELSE i.building END;
        i.access := 'scan';
        i.landmark_table := NULL;
        i.next_generation := NULL;
    END IF;
    UPDATE hashindex.index x
    SET (generation, building, access, landmark_table, next_generation)
        = (i.generation, i.building, i.access, i.landmark_table, i.next_generation)
    WHERE x.name = i.name;
    PERFORM hashindex._create_codes(i, format('%I.%I', i.schema_name, i.table_name)::regclass);
    IF i.layout = 'table' AND hashindex._is_distributed(i) THEN
        PERFORM hashindex._distribute_codes(i);
    END IF;
    PERFORM hashindex._create_functions(i);
    PERFORM hashindex._let_read(i, r) FROM hashindex._readers_of(i) r;
    RETURN true;
END
$$;

COMMENT ON FUNCTION hashindex._restore_codes(text) IS
    'makes the code table or code column of an index anew, if it is missing; returns whether it was';

-- To tell whether CREATE OR REPLACE has changed any.
CREATE OR REPLACE FUNCTION hashindex._function_texts(i hashindex.index)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN coalesce(string_agg(pg_get_functiondef(f), E'\n' ORDER BY f::text), '') FROM hashindex._functions_of(i) f;
END
$$;

COMMENT ON FUNCTION hashindex._function_texts(hashindex.index) IS
    'texts of an index''s own functions as they are now';

-- As SQL writes it under any search_path.
CREATE OR REPLACE FUNCTION hashindex._full_name(relation regclass)
RETURNS text
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format('%I.%I', n.nspname, c.relname)
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation;
END
$$;

COMMENT ON FUNCTION hashindex._full_name(regclass) IS 'name of a relation with its schema, quoted';

-- Disabled ones too, whoever disabled them: codes do not stay right without.
CREATE OR REPLACE FUNCTION hashindex._restore_triggers(name text)
RETURNS TABLE (table_name text, what text)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(_restore_triggers.name);
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    names text[] := hashindex._trigger_names(i);
    present record;
    unseen text[] := '{}';
BEGIN
    PERFORM hashindex._allow_shard_changes();
    FOR present IN
        SELECT t.tgname, hashindex._full_name(t.tgrelid) AS relation FROM hashindex._triggers_of(i) t
        WHERE t.tgparentid = 0 AND NOT (
            t.tgname = ANY (names) AND t.tgrelid IN (SELECT p.part FROM hashindex._parts_of(base) p)
        )
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', present.tgname, present.relation);
        table_name := present.relation;
        what := 'foreign';
        RETURN NEXT;
    END LOOP;
    FOR present IN
        SELECT t.tgname, hashindex._full_name(t.tgrelid) AS relation FROM hashindex._triggers_of(i) t
        WHERE t.tgenabled NOT IN ('O', 'A')
    LOOP
        EXECUTE format('ALTER TABLE %s ENABLE TRIGGER %I', present.relation, present.tgname);
        table_name := present.relation;
        what := 'disabled';
        unseen := unseen || table_name;
        RETURN NEXT;
    END LOOP;
    FOR present IN
        SELECT DISTINCT hashindex._full_name(p.part) AS relation
        FROM hashindex._parts_of(base) p CROSS JOIN unnest(names) n(name)
        -- PostgreSQL itself makes those of rows for partitions.
        WHERE (i.layout = 'table' OR p.part = base) AND NOT hashindex._has_trigger(i, p.part, n.name)
    LOOP
        table_name := present.relation;
        what := 'missing';
        unseen := unseen || table_name;
        RETURN NEXT;
    END LOOP;
    PERFORM hashindex._create_triggers(i, base);
    FOR present IN
        SELECT DISTINCT t.relation FROM hashindex._unverified_tables(i) t WHERE t.relation <> ALL (unseen)
    LOOP
        table_name := present.relation;
        what := 'unverified';
        RETURN NEXT;
    END LOOP;
    PERFORM hashindex._mark_unverified(i.name, t::regclass) FROM unnest(unseen) t;
END
$$;

COMMENT ON FUNCTION hashindex._restore_triggers(text) IS
    'makes the triggers of an index that are missing, enables disabled ones, and drops those of partitions that were detached; returns the tables, by what was wrong';
