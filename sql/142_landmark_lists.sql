-- The landmarks of an index and the lists around them: made, filled and kept fresh.

-- Whether triggers write entries: from when the lists are there, though searches use them later.
CREATE OR REPLACE FUNCTION hashindex.has_lists(i hashindex.index)
RETURNS boolean
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN 'landmarks' IN (i.access, i.building)
        AND to_regclass(format('hashindex.%I', i.storage || '_lists')) IS NOT NULL;
END
$$;

COMMENT ON FUNCTION hashindex.has_lists(hashindex.index) IS
    'whether the landmarks of an index are there, so that what is written has to be listed';

CREATE OR REPLACE FUNCTION hashindex.create_landmarks(name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(create_landmarks.name);
    used hashindex.model := m FROM hashindex.model m WHERE m.id = i.model_id;
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    kind text := CASE c.relpersistence WHEN 'u' THEN 'UNLOGGED' ELSE '' END
        FROM pg_class c WHERE c.oid = base;
    part text;
BEGIN
    PERFORM hashindex.drop_access(i, 'landmarks');
    EXECUTE format(
        'CREATE %s TABLE hashindex.%I (landmark integer PRIMARY KEY, centre halfvec(%s) NOT NULL)',
        kind, i.storage || '_landmarks', used.dimension
    );
    EXECUTE format(
        'COMMENT ON TABLE hashindex.%I IS %L', i.storage || '_landmarks',
        format('landmarks of index %s, that rows of %s are listed under', i.name, base)
    );
    -- One shape for both: CREATE TABLE AS takes the key's type, modifier and collation over.
    EXECUTE format(
        'CREATE %s TABLE hashindex.%I AS SELECT 0 AS landmark, ARRAY[id] AS ids, ARRAY[code] AS codes '
        'FROM %I.%I WITH NO DATA', kind, i.storage || '_lists', i.code_schema, i.code_table
    );
    EXECUTE format(
        'ALTER TABLE hashindex.%I ALTER landmark SET NOT NULL, ALTER ids SET NOT NULL, '
        'ALTER codes SET NOT NULL, ALTER ids SET STORAGE EXTERNAL, ALTER codes SET STORAGE EXTERNAL',
        i.storage || '_lists'
    );
    EXECUTE format('CREATE INDEX ON hashindex.%I (landmark)', i.storage || '_lists');
    EXECUTE format(
        'COMMENT ON TABLE hashindex.%I IS %L', i.storage || '_lists',
        format('rows of %s by landmark, for index %s: keys and codes, many to a row', base, i.name)
    );
    EXECUTE format(
        'CREATE UNLOGGED TABLE hashindex.%I AS SELECT 0 AS landmark, id, code FROM %I.%I WITH NO DATA',
        i.storage || '_listed', i.code_schema, i.code_table
    );
    EXECUTE format(
        'COMMENT ON TABLE hashindex.%I IS %L', i.storage || '_listed',
        format('entries that the lists of index %s are being made of', i.name)
    );
    -- Of whoever owns the codes, be this a member of that role.
    FOREACH part IN ARRAY ARRAY['landmarks', 'lists', 'listed'] LOOP
        EXECUTE format(
            'ALTER TABLE hashindex.%I OWNER TO %s', i.storage || '_' || part,
            (SELECT c.relowner::regrole FROM pg_class c
             WHERE c.oid = format('%I.%I', i.code_schema, i.code_table)::regclass)
        );
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex.create_landmarks(text) IS
    'makes the tables of an index''s landmarks, to be filled by pg-hashindex index encode';

-- With the mean of the landmarks, the HNSW is over their signs from there; without, over themselves.
-- The signs are a column: an expression of an index with a thousand numbers has no room in pg_index
-- before PostgreSQL 18.
CREATE OR REPLACE FUNCTION hashindex.index_landmarks(name text, mean vector)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_landmarks.name);
    used hashindex.model := m FROM hashindex.model m WHERE m.id = i.model_id;
BEGIN
    IF mean IS NOT NULL THEN
        EXECUTE format(
            'ALTER TABLE hashindex.%I ADD signs bit(%s) GENERATED ALWAYS AS (%s) STORED',
            i.storage || '_landmarks', used.dimension, hashindex.landmark_signs('centre', mean)
        );
        EXECUTE format(
            'CREATE INDEX ON hashindex.%I USING hnsw (signs bit_hamming_ops) WITH (m = 16, ef_construction = 128)',
            i.storage || '_landmarks'
        );
    -- pgvector's limit on halfvec; without an index probing looks at every landmark.
    ELSIF used.dimension <= 4000 THEN
        EXECUTE format(
            'CREATE INDEX ON hashindex.%I USING hnsw (centre %s) WITH (m = 24, ef_construction = 128)',
            i.storage || '_landmarks',
            CASE i.metric WHEN 'l2' THEN 'halfvec_l2_ops' ELSE 'halfvec_cosine_ops' END
        );
    END IF;
    PERFORM hashindex.grant_like_table(i.name);
END
$$;

COMMENT ON FUNCTION hashindex.index_landmarks(text, vector) IS
    'makes the landmarks of an index, once they are in, ready for searches';

-- Everything written from now on is listed, and what was written before is there to be read.
CREATE OR REPLACE FUNCTION hashindex.begin_listing(name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(begin_listing.name);
BEGIN
    PERFORM hashindex.wait_for_writers(i);
    PERFORM hashindex.create_functions(i);
END
$$;

COMMENT ON FUNCTION hashindex.begin_listing(text) IS
    'has the triggers of an index list what is written from now on';

CREATE OR REPLACE FUNCTION hashindex.pack_lists(name text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(pack_lists.name);
BEGIN
    EXECUTE format(
        'INSERT INTO hashindex.%I (landmark, ids, codes) '
        'SELECT e.landmark, array_agg(e.id), array_agg(e.code) FROM hashindex.%I e GROUP BY e.landmark',
        i.storage || '_lists', i.storage || '_listed'
    );
    EXECUTE format('DROP TABLE hashindex.%I', i.storage || '_listed');
END
$$;

COMMENT ON FUNCTION hashindex.pack_lists(text) IS
    'makes lists of the entries that pg-hashindex index encode has gathered';

-- The landmarks of one vector: the nearest, and of the 16 nearest the one for which the squared
-- length of the residual, and once more of its part along the first residual, is least. A second
-- residual across the first one serves the queries that the first serves worst (SOAR, Sun et al.
-- 2023). The same in Python: pg_hashindex/landmarks/assignment.py.
CREATE OR REPLACE FUNCTION hashindex.assigned_landmarks(i hashindex.index, vector_term text)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        $query$SELECT s.landmark FROM (
        SELECT f.landmark, f.place, vector_norm(f.residual) ^ 2 + coalesce(
            inner_product(f.residual, f.first_residual) ^ 2 / nullif(vector_norm(f.first_residual), 0) ^ 2, 0
        ) AS cost
        FROM (
            SELECT r.landmark, r.residual, row_number() OVER (ORDER BY r.far, r.landmark) AS place,
                   first_value(r.residual) OVER (ORDER BY r.far, r.landmark) AS first_residual
            FROM (
                SELECT n.landmark, n.far, n.point - n.centre::vector AS residual FROM (%s) n
            ) r
        ) f
    ) s
    ORDER BY s.place > 1, s.cost, s.place LIMIT 2$query$,
        hashindex.near_landmarks(i, vector_term, '16')
    );
END
$$;

COMMENT ON FUNCTION hashindex.assigned_landmarks(hashindex.index, text) IS
    'text of the query for the two landmarks that a vector is listed under';

-- From SQL for rows (id, code, vector); one chunk a landmark.
CREATE OR REPLACE FUNCTION hashindex.list_statement(i hashindex.index, rows_query text)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        $statement$INSERT INTO hashindex.%1$I (landmark, ids, codes)
    SELECT a.landmark, array_agg(e.id), array_agg(e.code)
    FROM (%2$s) e CROSS JOIN LATERAL (%3$s) a
    GROUP BY a.landmark$statement$,
        i.storage || '_lists', rows_query, hashindex.assigned_landmarks(i, 'e.vector')
    );
END
$$;

COMMENT ON FUNCTION hashindex.list_statement(hashindex.index, text) IS
    'text of the statement that lists rows under their landmarks';

-- Of rows whose codes were written by pg-hashindex index encode, which fires no trigger of the table.
CREATE OR REPLACE FUNCTION hashindex.list_rows(name text, ids text[])
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(list_rows.name);
    -- The session's own effort is for searches of its own.
    search_effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
BEGIN
    IF hashindex.has_lists(i) THEN
        PERFORM set_config('hnsw.ef_search', '64', true);
        EXECUTE hashindex.list_statement(i, format(
            'SELECT c.id, c.code, b.%1$I::vector AS vector FROM unnest($1) t(id) '
            'JOIN %2$I.%3$I c ON c.id = t.id::%4$s '
            'JOIN %5$I.%6$I b ON b.%7$I = c.id WHERE b.%1$I IS NOT NULL',
            i.column_name, i.code_schema, i.code_table, i.id_type,
            i.schema_name, i.table_name, i.id_column
        )) USING ids;
        PERFORM set_config('hnsw.ef_search', search_effort, true);
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex.list_rows(text, text[]) IS
    'lists rows that have just got a code, where an index has landmarks';
