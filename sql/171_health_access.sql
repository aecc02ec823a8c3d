-- Health of what searches go by: the access path, lists of landmarks, and swaps of the model.

CREATE OR REPLACE FUNCTION hashindex._health_of_access(i hashindex.index)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    named text := hashindex._shell_word(i.name);
    again text := format('pg-hashindex index configure %1$s --access scan, and then --access %2$s', named, i.access);
    faults text[] := '{}';
    has_landmarks boolean;
BEGIN
    IF i.access = 'landmarks' THEN
        IF to_regclass('hashindex.' || quote_ident(i.landmark_table)) IS NULL THEN
            RETURN QUERY SELECT 'access', 'broken', 1::double precision,
                'the landmarks of the index are gone'::text, 'pg-hashindex index repair ' || named;
            RETURN;
        END IF;
        EXECUTE format('SELECT EXISTS (SELECT FROM hashindex.%I)', i.landmark_table) INTO has_landmarks;
        faults := CASE
            WHEN NOT has_landmarks THEN ARRAY['there are no landmarks: searches read all codes']
            WHEN NOT EXISTS (
                SELECT FROM pg_index x JOIN pg_class c ON c.oid = x.indexrelid JOIN pg_am a ON a.oid = c.relam
                WHERE x.indrelid = to_regclass('hashindex.' || quote_ident(i.landmark_table))
                  AND a.amname = 'hnsw' AND x.indisvalid
            ) AND (SELECT m.dimension FROM hashindex.model m WHERE m.id = i.model_id) <= 4000
                THEN ARRAY['the HNSW over landmarks is gone: searches look at each of them']
            WHEN NOT EXISTS (
                SELECT FROM pg_index x JOIN pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
                WHERE x.indrelid = to_regclass(format('%I.%I', i.code_schema, i.code_table)) AND a.attname = 'landmark' AND x.indisvalid
            ) THEN ARRAY['the b-tree over the landmarks of codes is gone: searches read all codes']
            ELSE '{}' END;
    ELSIF i.access IN ('lookup', 'hnsw') THEN
        faults := ARRAY(
            SELECT x.index_name || CASE WHEN p.indexrelid IS NULL THEN ' is gone' ELSE ' is not valid' END
            FROM hashindex._code_indexes(i, i.access) x
            LEFT JOIN pg_index p ON p.indexrelid = to_regclass(x.index_name)
            WHERE p.indisvalid IS NOT TRUE
        );
    END IF;
    IF faults <> '{}' THEN
        RETURN QUERY SELECT 'access', 'warning', cardinality(faults)::double precision,
            format('of access path %s %s; searches are slow', i.access, array_to_string(faults, '; ')),
            CASE WHEN i.access = 'landmarks' THEN again ELSE 'pg-hashindex index repair ' || named END;
    ELSIF i.building IS NULL THEN
        RETURN QUERY SELECT 'access', 'ok', 0::double precision, format('searches go by %s', i.access), NULL::text;
    ELSIF hashindex._is_at_work('access', i.name) OR hashindex._is_at_work('encode', i.name) THEN
        RETURN QUERY SELECT 'access', 'ok', 0::double precision,
            format('access path %s is being built; until then searches go by %s', i.building, i.access), NULL::text;
    ELSE
        RETURN QUERY SELECT 'access', 'warning', 1::double precision,
            format('access path %s is not built, and nobody is at it; searches go by %s', i.building, i.access),
            'pg-hashindex index encode ' || named;
    END IF;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_access(hashindex.index) IS
    'health: whether the access path of an index is there and valid, or one is being built';

-- A list is the codes of a landmark. The statistics of PostgreSQL tell how long they are, and whether they still lie together.
CREATE OR REPLACE FUNCTION hashindex._health_of_lists(i hashindex.index, "full" boolean, codes double precision)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    code_table regclass := to_regclass(format('%I.%I', i.code_schema, i.code_table));
    landmarks bigint;
    longest bigint;
    in_long double precision;
    unlisted bigint;
    sampled text;
    counted double precision;
    together double precision;
    mean double precision;
    wrong text[] := '{}';
    rebuild text := 'pg-hashindex index rebalance ' || hashindex._shell_word(i.name);
BEGIN
    IF i.access <> 'landmarks' OR code_table IS NULL OR to_regclass('hashindex.' || quote_ident(i.landmark_table)) IS NULL THEN
        RETURN;
    END IF;
    sampled := CASE WHEN _health_of_lists.full THEN '' ELSE hashindex._sample_clause(code_table, 100000) END;
    EXECUTE format('SELECT count(*) FROM hashindex.%I', i.landmark_table) INTO landmarks;
    EXECUTE format(
        'WITH lists AS (SELECT c.landmark, count(*) AS n FROM %s c %s GROUP BY c.landmark) '
        'SELECT coalesce(max(l.n) FILTER (WHERE l.landmark IS NOT NULL), 0), coalesce(sum(l.n), 0), '
        '       coalesce(sum(l.n) FILTER (WHERE l.landmark IS NOT NULL AND l.n > greatest(4 * $1, 200)), 0), '
        '       coalesce(sum(l.n) FILTER (WHERE l.landmark IS NULL), 0) FROM lists l',
        code_table, sampled
    ) INTO longest, counted, in_long, unlisted USING codes / greatest(landmarks, 1);
    mean := counted / greatest(landmarks, 1);
    SELECT abs(s.correlation) INTO together FROM pg_stats s
    WHERE (s.schemaname, s.tablename, s.attname) = (i.code_schema, i.code_table, 'landmark');
    IF in_long > 0.05 * counted THEN
        wrong := wrong || format('%s %% of codes are in lists much longer than the others', round(100 * in_long / counted));
    END IF;
    IF together < 0.7 AND codes > 10000 THEN
        wrong := wrong || 'codes of one landmark no longer lie together: searches read more pages'::text;
    END IF;
    RETURN QUERY SELECT 'lists', CASE WHEN wrong = '{}' THEN 'ok' ELSE 'warning' END, longest::double precision,
        format('%s landmarks, %s codes each', landmarks, round(codes / greatest(landmarks, 1)))
            || CASE WHEN sampled = '' THEN format(', %s at most', longest) ELSE '' END
            || CASE WHEN wrong <> '{}' THEN '; ' || array_to_string(wrong, '; ') ELSE '' END,
        CASE WHEN wrong <> '{}' THEN rebuild END;
    wrong := '{}';
    IF unlisted > 0 THEN
        wrong := wrong || format('%s codes are in no list, so that searches miss their rows', unlisted);
    END IF;
    IF codes > 0 AND (codes <= i.trained_rows / 10.0 OR codes >= i.trained_rows * 10.0) THEN
        wrong := wrong || format('the landmarks were trained on %s rows, and there are %s now: searches are slow',
                                 i.trained_rows, round(codes));
    END IF;
    RETURN QUERY SELECT 'landmarks', CASE WHEN wrong = '{}' THEN 'ok' ELSE 'warning' END,
        codes / nullif(i.trained_rows, 0),
        CASE WHEN wrong = '{}' THEN format('trained on %s rows, there are %s now', i.trained_rows, round(codes))
             ELSE array_to_string(wrong, '; ') END,
        CASE WHEN unlisted > 0 THEN 'pg-hashindex index encode ' || hashindex._shell_word(i.name) WHEN wrong <> '{}' THEN rebuild END;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_lists(hashindex.index, boolean, double precision) IS
    'health: how long the lists of landmarks are, and whether the landmarks still fit the table';

-- Values that are kept beside codes: those of the table, as long as triggers saw every change.
CREATE OR REPLACE FUNCTION hashindex._health_of_filters(i hashindex.index, "full" boolean)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    faults text[];
    differing text;
    ids text[];
    looked_at bigint;
    stale bigint;
    again text := 'drop the index, and make it again with the filter columns that the table has';
BEGIN
    IF i.filter_columns = '{}' THEN
        RETURN;
    END IF;
    faults := array_remove(ARRAY(
        SELECT hashindex._filter_fault(i, f.name, f.n) FROM unnest(i.filter_columns) WITH ORDINALITY f(name, n) ORDER BY f.n
    ), NULL);
    IF faults <> '{}' THEN
        RETURN QUERY SELECT 'filters', 'broken', cardinality(faults)::double precision, array_to_string(faults, '; '), again;
        RETURN;
    END IF;
    IF NOT _health_of_filters.full THEN
        ids := s.ids FROM hashindex._sample_ids(base, i.id_column, 'true', 2000) s;
    END IF;
    SELECT format('record_image_ne(ROW(%s), ROW(%s))', string_agg(format('b.%I', f.name), ', ' ORDER BY f.n),
                  string_agg(format('c.filter_%s', f.n), ', ' ORDER BY f.n))
    INTO differing FROM unnest(i.filter_columns) WITH ORDINALITY f(name, n);
    EXECUTE format(
        'SELECT count(*), count(*) FILTER (WHERE %s) FROM %s JOIN %I.%I c ON c.id = b.%I', differing,
        CASE WHEN _health_of_filters.full THEN format('%s b', base)
             ELSE format('unnest($1) k(id) JOIN %s b ON b.%I = k.id::%s', base, i.id_column, hashindex._key_type(i.id_type)) END,
        i.code_schema, i.code_table, i.id_column
    ) INTO looked_at, stale USING ids;
    RETURN QUERY SELECT 'filters', CASE WHEN stale > 0 THEN 'broken' ELSE 'ok' END, stale::double precision,
        CASE WHEN stale = 0 THEN format('the filter columns of %s codes are as in the table', looked_at)
             ELSE format('the filter columns of %s codes, of %s, are not as in the table: filters leave their rows out', stale, looked_at) END,
        CASE WHEN stale > 0 THEN again END;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_filters(hashindex.index, boolean) IS
    'health: whether filter columns are in the table as they were, and kept beside codes as they are';

CREATE OR REPLACE FUNCTION hashindex._health_of_swap(i hashindex.index)
RETURNS TABLE (check_name text, status text, value double precision, detail text, advice text)
LANGUAGE plpgsql STABLE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    beside record;
    named text := hashindex._shell_word(i.name);
    running boolean := hashindex._is_at_work('swap', i.name);
BEGIN
    FOR beside IN
        SELECT x.swap_state, format('%s:%s', m.name, m.version) AS model,
               hashindex._shell_word(format('%s:%s', m.name, m.version)) AS word
        FROM hashindex.index x JOIN hashindex.model m ON m.id = x.model_id
        WHERE x.swap_of = i.name ORDER BY x.swap_state
    LOOP
        RETURN QUERY SELECT 'swap',
            CASE WHEN beside.swap_state = 'previous' OR running THEN 'ok' ELSE 'warning' END, NULL::double precision,
            CASE WHEN beside.swap_state = 'previous'
                THEN format('the codes of model %s, which the index had before, are kept fresh beside', beside.model)
                WHEN running THEN format('the index is being swapped to model %s', beside.model)
                ELSE format('a swap to model %s was left %s', beside.model, CASE beside.swap_state
                    WHEN 'ready' THEN 'when all was encoded' ELSE 'half done' END) END,
            CASE WHEN beside.swap_state = 'previous'
                THEN format('return to them by pg-hashindex index rollback %1$s, or drop them: '
                            'pg-hashindex index prune %1$s', named)
                WHEN NOT running THEN format(
                    'go on: pg-hashindex index swap %1$s --model %2$s; or give it up: pg-hashindex index repair %1$s --undo',
                    named, beside.word
                ) END;
    END LOOP;
END
$$;

COMMENT ON FUNCTION hashindex._health_of_swap(hashindex.index) IS
    'health: swaps of an index''s model that were left half done, and codes of before that were not pruned';
