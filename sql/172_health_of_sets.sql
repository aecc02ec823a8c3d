-- Checks and repairs an index that pgvector keeps. Where its index is gone, searches compare all rows: they stay right.

-- Health of an index with a set of pgvector.
CREATE OR REPLACE FUNCTION hashindex._health_of_set(i hashindex.index, "full" boolean)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    s hashindex.index_set := hashindex._set_of(i.name);
    base regclass := hashindex._base_of(i);
    repair text := 'pg-hashindex index repair ' || i.name;
    used hashindex.readable_model;
    faults text[];
    held regclass := hashindex._oid_of(i.schema_name, s.relation);
    rows double precision;
    n double precision;
    needed double precision;
    lists integer;
BEGIN
    IF s.id IS NULL THEN
        RETURN QUERY SELECT 'set', 'broken', NULL::double precision, 'its first build was cut off, or is under way', 'pg-hashindex index drop ' || i.name || '; then create it again';
        RETURN;
    ELSIF base IS NULL THEN
        RETURN QUERY SELECT 'table', 'broken', NULL::double precision, format('table %I.%I is gone, or has another name: searches fail', i.schema_name, i.table_name), repair;
        RETURN;
    END IF;
    PERFORM hashindex._go_in_sequence(base);
    faults := ARRAY(SELECT format('%s has no column "%s"', base, c.name) FROM unnest(hashindex._missing_columns(i, s)) c(name));
    IF faults = '{}' THEN
        faults := ARRAY(
            SELECT format('key "%s" of %s is of type %s, and was of %s', k.name, base, k.type, k.was)
            FROM hashindex._key_types(base, i.key_columns) t CROSS JOIN LATERAL unnest(i.key_columns, t.types, i.key_types) k(name, type, was)
            WHERE hashindex._base_type(k.type) <> hashindex._base_type(k.was)
        );
    END IF;
    RETURN QUERY SELECT 'table', CASE WHEN faults = '{}' THEN 'ok' ELSE 'broken' END, cardinality(faults)::double precision,
        CASE WHEN faults = '{}' THEN 'table, column and key are there' ELSE array_to_string(faults, '; ') || ': searches fail' END, CASE WHEN faults <> '{}' THEN repair END;
    IF faults <> '{}' THEN
        RETURN;
    END IF;
    IF NOT EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = base AND a.attname = s.column_name AND a.atttypid IN ('{ext}.vector'::regtype, '{ext}.halfvec'::regtype)
    ) THEN
        RETURN QUERY SELECT 'dimension', 'broken', NULL::double precision, format('column "%s" of %s holds no vectors any more: searches fail', s.column_name, base),
            format('pg-hashindex index swap %s --column COLUMN, or drop the index', i.name);
        RETURN;
    END IF;
    EXECUTE format('SELECT coalesce(max({ext}.vector_dims(r.v)), $1) FROM (SELECT b.%I::{ext}.vector AS v FROM %s b WHERE b.%I IS NOT NULL LIMIT 1) r', s.column_name, base, s.column_name)
    INTO n USING coalesce((SELECT nullif(a.atttypmod, -1) FROM pg_attribute a WHERE a.attrelid = base AND a.attname = s.column_name), s.dimension);
    RETURN QUERY SELECT 'dimension', CASE WHEN n = s.dimension THEN 'ok' ELSE 'broken' END, n,
        CASE WHEN n = s.dimension THEN format('%s, as the set has', n) ELSE format('vectors of %s have %s dimensions, and the set %s: searches fail', base, n, s.dimension) END,
        CASE WHEN n <> s.dimension THEN format('put them into a column of their own, and run: pg-hashindex index swap %s --column COLUMN --model MODEL', i.name) END;
    faults := ARRAY(SELECT format('%s hashindex.%s %s', f.kind, f.name, f.fault) FROM hashindex._object_faults(i, '{function,trigger}') f);
    RETURN QUERY SELECT 'functions', CASE WHEN faults = '{}' THEN 'ok' ELSE 'broken' END, cardinality(faults)::double precision,
        CASE WHEN faults = '{}' THEN 'all there' ELSE array_to_string(faults, '; ') END, CASE WHEN faults <> '{}' THEN repair END;
    IF s.access IS NOT NULL THEN
        RETURN QUERY SELECT 'index', CASE WHEN f.fault IS NULL THEN 'ok' ELSE 'warning' END, NULL::double precision,
            coalesce(f.fault || ': searches rank all rows, right and slow', format('%I serves the set', s.relation)), CASE WHEN f.fault IS NOT NULL THEN repair END
        FROM (SELECT CASE
            WHEN held IS NULL THEN format('index %I.%I is gone', i.schema_name, s.relation)
            WHEN NOT (SELECT x.indisvalid FROM pg_index x WHERE x.indexrelid = held) THEN format('index %s is INVALID', held)
            WHEN hashindex._serving_relation(i, s) IS DISTINCT FROM s.relation THEN format('index %s is not of the set %s any more', held, hashindex._set_text(s))
        END) f(fault);
    END IF;
    rows := hashindex._rows_of(base);
    SELECT sum(t.n_dead_tup) / nullif(sum(t.n_live_tup + t.n_dead_tup), 0) INTO n FROM pg_stat_all_tables t
    WHERE t.relid = base OR t.relid IN (SELECT p.relid FROM pg_partition_tree(base) p);
    RETURN QUERY SELECT 'dead_rows', CASE WHEN n > 0.2 THEN 'warning' ELSE 'ok' END, n, format('%s %% of the rows are dead', round(100 * coalesce(n, 0))),
        CASE WHEN n > 0.2 THEN format('VACUUM %s', base) END;
    IF held IS NOT NULL AND s.access IS NOT NULL THEN
        n := hashindex._relation_bytes(i, s);
        needed := hashindex._set_bytes(s, (SELECT m.n_bits FROM hashindex.model m WHERE m.id = s.model_id), rows);
        RETURN QUERY SELECT 'size', CASE WHEN n > 2 * needed + 8e6 THEN 'warning' ELSE 'ok' END, n / greatest(needed, 8e6),
            format('%s MB, and %s would do', round((n / 1e6)::numeric, 1), round((needed / 1e6)::numeric, 1)),
            CASE WHEN n > 2 * needed + 8e6 THEN format('REINDEX INDEX CONCURRENTLY %s', held) END;
        IF s.model_id IS NULL THEN
            -- Three cuts of each coordinate.
            needed := hashindex._set_bytes(s, NULL, rows) - rows * (s.dimension * (CASE WHEN s.halves THEN 2 ELSE 4 END - 3 / 8.0));
            RETURN QUERY SELECT 'memory', 'ok', n / pg_size_bytes(current_setting('effective_cache_size')), format('effective_cache_size is %s', current_setting('effective_cache_size')),
                CASE WHEN n > pg_size_bytes(current_setting('effective_cache_size')) THEN format(
                    'the index does not fit into memory; codes take about %s MB: train a model, and run: pg-hashindex index swap %s --model MODEL',
                    round((needed / 1e6)::numeric, 1), i.name) END;
        END IF;
        lists := substring(array_to_string(c.reloptions, ',') FROM 'lists=([0-9]+)') FROM pg_class c WHERE c.oid = held;
        needed := hashindex._ivfflat_lists(rows);
        IF s.access = 'ivfflat' AND lists IS NOT NULL THEN
            RETURN QUERY SELECT 'lists', CASE WHEN needed > 4 * lists THEN 'warning' ELSE 'ok' END, lists::double precision,
                format('%s lists of %s rows', lists, round(rows / lists)),
                CASE WHEN needed > 4 * lists THEN format('ALTER INDEX %s SET (lists = %s); REINDEX INDEX CONCURRENTLY %s', held, needed, held) END;
        END IF;
    END IF;
    IF s.code_column IS NOT NULL AND NOT s.stores THEN
        EXECUTE format('SELECT count(*) FROM %s b WHERE b.%I IS NOT NULL AND b.%I IS NULL', base, s.column_name, s.code_column) INTO n;
        RETURN QUERY SELECT 'unfilled', CASE WHEN n = 0 THEN 'ok' ELSE 'broken' END, n,
            CASE WHEN n = 0 THEN 'each vector has a code' ELSE format('%s rows have a vector and no code: searches do not find them', n) END,
            CASE WHEN n > 0 THEN format('fill column %I; to have it refused: ALTER TABLE %s ADD CHECK (%I IS NULL OR %I IS NOT NULL) NOT VALID', s.code_column, base, s.column_name, s.code_column) END;
    END IF;
    IF "full" AND i.metric = 'cosine' THEN
        EXECUTE format('SELECT count(*) FROM %s b WHERE {ext}.vector_norm(b.%I::{ext}.vector) = 0', base, s.column_name) INTO n;
        RETURN QUERY SELECT 'zero_vectors', 'ok', n, format('%s rows have vectors of zeros, which are near to nothing by cosine', n), NULL::text;
    END IF;
    RETURN QUERY SELECT h.* FROM hashindex._health_of_other(i, "full") h;
END
$$;

-- Columns that a set reads and its table no longer has.
CREATE OR REPLACE FUNCTION hashindex._missing_columns(i hashindex.index, s hashindex.index_set) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN ARRAY(
        SELECT c.name FROM unnest(hashindex._read_columns(i) || s.code_column || nullif(s.column_name, i.column_name)) c(name)
        WHERE c.name IS NOT NULL AND NOT EXISTS (
            SELECT FROM pg_attribute a WHERE a.attrelid = hashindex._base_of(i) AND a.attname = c.name AND NOT a.attisdropped
        )
    );
END
$$;

-- Refuses a search of a set whose table or columns have other names now.
CREATE OR REPLACE FUNCTION hashindex._refuse_renamed(i hashindex.index) RETURNS void
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    missing text[] := hashindex._missing_columns(i, hashindex._set_of(i.name));
    repair text := format('If it was renamed, run: pg-hashindex index repair %s', i.name);
BEGIN
    IF hashindex._base_of(i) IS NULL THEN
        RAISE EXCEPTION 'table %.% of index "%" does not exist', quote_ident(i.schema_name), quote_ident(i.table_name), i.name USING ERRCODE = 'undefined_table', HINT = repair;
    ELSIF missing <> '{}' THEN
        RAISE EXCEPTION 'table %.% of index "%" has no column "%"', quote_ident(i.schema_name), quote_ident(i.table_name), i.name, missing[1]
            USING ERRCODE = 'undefined_column', HINT = repair;
    END IF;
END
$$;

-- Lists of an IVFFlat index: one for each 300 rows; of large tables as many as twice the root of the rows.
CREATE OR REPLACE FUNCTION hashindex._ivfflat_lists(rows double precision) RETURNS integer
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
RETURN greatest(10, least(32768, round(least(rows / 300, 2 * sqrt(rows)))));

-- Finds the table, the columns and the index of a set again after renamings, by the index of pgvector's; makes the search function again.
-- Returns what was done. Called by index/sets.py.
CREATE OR REPLACE FUNCTION hashindex._rebind_set(name text) RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(name, administers => true);
    s hashindex.index_set := hashindex._used_set(i);
    moved record;
    key record;
    places bigint;
    gone boolean;
BEGIN
    SELECT n.nspname, c.relname, c.oid INTO moved FROM pg_class r JOIN pg_index x ON x.indexrelid = r.oid JOIN pg_class c ON c.oid = x.indrelid
    JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_am a ON a.oid = r.relam
    WHERE r.relname = s.relation AND a.amname = s.access ORDER BY n.nspname = i.schema_name DESC, c.relname = i.table_name DESC LIMIT 1;
    SELECT count(*) INTO places FROM pg_class r JOIN pg_am a ON a.oid = r.relam WHERE r.relname = s.relation AND a.amname = s.access;
    IF hashindex._base_of(i) IS NULL AND places > 1 THEN
        RAISE EXCEPTION 'table %.% of index "%" is gone, and several tables have an index "%"', i.schema_name, i.table_name, i.name, s.relation
            USING ERRCODE = 'undefined_table', HINT = format('Drop the index, and create it on the table that is meant: pg-hashindex index drop %s', i.name);
    -- Another table may have an index of that name.
    ELSIF hashindex._base_of(i) IS NULL AND moved.oid = s.table_oid THEN
        UPDATE hashindex.index x SET (schema_name, table_name) = (moved.nspname, moved.relname) WHERE x.name = i.name RETURNING x.* INTO i;
        RETURN NEXT format('the table is %s now', moved.oid::regclass);
    ELSIF hashindex._base_of(i) IS NULL THEN
        RAISE EXCEPTION 'table %.% of index "%" is gone', i.schema_name, i.table_name, i.name
            USING ERRCODE = 'undefined_table', HINT = format('Drop the index: pg-hashindex index drop %s', i.name);
    END IF;
    -- A set of pgvector has no codes of another table.
    PERFORM hashindex._bind(x.id, x.encoded IS NULL) FROM hashindex.index_set x WHERE x.index_name = i.name;
    IF s.code_column IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = hashindex._base_of(i) AND a.attname = s.code_column AND NOT a.attisdropped
    ) THEN
        SELECT a.attname INTO moved FROM pg_index x JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
        WHERE x.indexrelid = hashindex._oid_of(i.schema_name, s.relation) AND x.indrelid = hashindex._base_of(i) AND a.atttypid = 'bit'::regtype;
        IF moved.attname IS NULL AND s.stores THEN
            PERFORM hashindex._check_vector_column(hashindex._base_of(i), s.column_name, s.dimension);
            PERFORM hashindex._add_code_column(hashindex._base_of(i), m, s) FROM hashindex.model m WHERE m.id = s.model_id;
            moved.attname := s.code_column;
        ELSIF moved.attname IS NULL THEN
            RAISE EXCEPTION 'column "%" of codes of index "%" is gone', s.code_column, i.name
                USING ERRCODE = 'undefined_column', HINT = format('Drop the index, and create it again: pg-hashindex index drop %s', i.name);
        END IF;
        UPDATE hashindex.index_set x SET code_column = moved.attname WHERE x.index_name = i.name AND x.code_column = s.code_column;
        RETURN NEXT CASE WHEN moved.attname = s.code_column THEN format('made column "%s" of codes again', s.code_column)
            ELSE format('the column of codes is "%s" now', moved.attname) END;
        s := hashindex._set_of(i.name);
    END IF;
    IF i.tenant_column IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_attribute a WHERE a.attrelid = hashindex._base_of(i) AND a.attname = i.tenant_column AND NOT a.attisdropped
    ) THEN
        -- A guess would show a tenant the rows of others.
        RAISE EXCEPTION 'tenant column "%" of index "%" is gone', i.tenant_column, i.name
            USING ERRCODE = 'undefined_column', HINT = format(
                'If it was renamed, run: UPDATE hashindex.index SET tenant_column = %L WHERE name = %L; then: pg-hashindex index repair %s', 'NEW NAME', i.name, i.name);
    END IF;
    IF NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = hashindex._base_of(i) AND a.attname = s.column_name AND NOT a.attisdropped) THEN
        -- pgvector's index depends on it, or a column of codes that is made of it; a column of the user's is known as the only one.
        SELECT a.attname, count(*) OVER () AS n INTO moved FROM pg_attribute a
        WHERE a.attrelid = hashindex._base_of(i) AND NOT a.attisdropped AND a.atttypid IN ('{ext}.vector'::regtype, '{ext}.halfvec'::regtype)
          AND (s.code_column IS NOT NULL AND NOT s.stores OR EXISTS (
              SELECT FROM pg_depend d LEFT JOIN pg_attrdef f ON f.oid = d.objid
              WHERE d.refobjid = a.attrelid AND d.refobjsubid = a.attnum AND (
                  d.classid = 'pg_class'::regclass AND d.objid = hashindex._oid_of(i.schema_name, s.relation)
                  OR d.classid = 'pg_attrdef'::regclass AND f.adrelid = a.attrelid AND f.adnum = (
                      SELECT c.attnum FROM pg_attribute c WHERE c.attrelid = a.attrelid AND c.attname = s.code_column)
              )
          ));
        IF moved.n > 1 THEN
            moved := NULL;
        END IF;
        IF moved.attname IS NULL THEN
            RAISE EXCEPTION 'column "%" of index "%" is gone', s.column_name, i.name
                USING ERRCODE = 'undefined_column', HINT = format('Drop the index: pg-hashindex index drop %s', i.name);
        END IF;
        UPDATE hashindex.index x SET column_name = moved.attname WHERE x.name = i.name RETURNING x.* INTO i;
        UPDATE hashindex.index_set x SET column_name = moved.attname WHERE x.index_name = i.name AND x.column_name = s.column_name;
        s := hashindex._set_of(i.name);
        RETURN NEXT format('the column is "%s" now', moved.attname);
    END IF;
    IF EXISTS (
        SELECT FROM unnest(i.key_columns) k(name)
        WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = hashindex._base_of(i) AND a.attname = k.name AND NOT a.attisdropped)
    ) THEN
        UPDATE hashindex.index x SET (key_columns, key_types) = (SELECT k.key_columns, k.key_types FROM hashindex._find_key(hashindex._base_of(i), NULL) k)
        WHERE x.name = i.name RETURNING x.* INTO i;
        RETURN NEXT format('the key is %s now', hashindex._named(i.key_columns));
    END IF;
    SELECT t.* INTO key FROM hashindex._key_types(hashindex._base_of(i), i.key_columns) t;
    IF key.wrong IS NOT NULL THEN
        RAISE EXCEPTION '%', key.wrong USING ERRCODE = 'invalid_table_definition', HINT = format('Give it a type of PostgreSQL''s, or drop the index: pg-hashindex index drop %s', i.name);
    ELSIF key.types <> i.key_types THEN
        UPDATE hashindex.index x SET key_types = key.types WHERE x.name = i.name RETURNING x.* INTO i;
        RETURN NEXT format('the key is of type %s now', array_to_string(i.key_types, ', '));
    END IF;
    -- An index through a cast to another dimension would refuse each row that is written.
    PERFORM hashindex._check_vector_column(hashindex._base_of(i), s.column_name, s.dimension, s.access IS NOT NULL AND hashindex._serving_relation(i, s) IS NULL);
    IF s.access IS NOT NULL AND hashindex._serving_relation(i, s) <> s.relation THEN
        -- Ours under another name stays ours.
        gone := hashindex._oid_of(i.schema_name, s.relation) IS NULL;
        s.relation := hashindex._serving_relation(i, s);
        UPDATE hashindex.index_set x SET (relation, owns_relation) = (s.relation, s.owns_relation AND gone) WHERE x.id = s.id RETURNING x.* INTO s;
        RETURN NEXT format('index %I serves the set', s.relation);
    END IF;
    IF s.access IS NOT NULL AND NOT s.owns_relation AND hashindex._serving_relation(i, s) IS NULL THEN
        -- The user's index is gone: this one will be ours.
        s.relation := hashindex._free_relation(i, s);
        UPDATE hashindex.index_set x SET (relation, owns_relation) = (s.relation, true) WHERE x.id = s.id RETURNING x.* INTO s;
    END IF;
    IF EXISTS (SELECT FROM hashindex._object_faults(i, '{function}')) THEN
        RETURN NEXT 'made the search function again';
    END IF;
    PERFORM hashindex._create_functions(i);
END
$$;
