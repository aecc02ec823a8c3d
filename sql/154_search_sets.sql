-- Searches of sets of pgvector that are not the plain ones of search_NAME.

-- Nearest rows that match a filter, or that row security leaves. Few of them are all compared; otherwise the scan of pgvector's index goes on
-- until enough match.
CREATE OR REPLACE FUNCTION hashindex._search_filtered_set(
    i hashindex.index, query {ext}.vector, k integer, candidates integer, effort integer, filter text, where_equals jsonb, caller_path text
)
RETURNS TABLE (id text, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    s hashindex.index_set := hashindex._used_set(i);
    base text := format('%I.%I', i.schema_name, i.table_name);
    wanted text := coalesce(hashindex._filter_of(i, filter, where_equals, caller_path), 'true');
    -- where_equals holds no SQL of the caller's.
    filter_path text := CASE WHEN filter IS NULL THEN current_setting('search_path') ELSE caller_path END;
    own_path text := current_setting('search_path');
    expected double precision := (hashindex._estimate(format(E'SELECT FROM %s WHERE (%s\n)', base, wanted), filter_path)).matching;
    rows double precision := greatest(1, CASE WHEN hashindex._is_sharded(base::regclass) THEN (hashindex._estimate('SELECT FROM ' || base)).matching ELSE hashindex._rows_of(base::regclass) END);
    names text[];
    settings text[];
    ranked text;
    path text;
    found record;
    ids text[] := '{}';
    distances double precision[] := '{}';
BEGIN
    -- Both take as long at sqrt(400 N) of N rows, 5,000 of 60,000 (measured).
    IF expected > sqrt(400 * rows) AND s.relation IS NOT NULL THEN
        EXECUTE format('SELECT (%s)::text', (hashindex._set_sql(i, s, '$1')).ranked_query) INTO ranked USING query;
        SELECT array_agg(x.name), array_agg(x.value) INTO names, settings
        FROM hashindex._scan_settings(effort, 4.0 * candidates * rows / greatest(expected, 1), true) x;
        settings := hashindex._put_settings(names, settings);
        path := set_config('search_path', filter_path, true);
        FOR found IN EXECUTE hashindex._set_statement(i, s, candidates, k, wanted) USING query::pg_catalog.text, ranked LOOP
            ids := pg_catalog.array_append(ids, found.id);
            distances := pg_catalog.array_append(distances, found.distance);
        END LOOP;
        path := pg_catalog.set_config('search_path', own_path, true);
        settings := hashindex._put_settings(names, settings);
        IF cardinality(ids) = k THEN
            RETURN QUERY SELECT u.* FROM unnest(ids, distances) u;
            RETURN;
        END IF;
    END IF;
    RETURN QUERY SELECT e.* FROM hashindex._exact_search(base::regclass, i.key_columns, s.column_name, i.metric, query, k, wanted, filter_path) e;
END
$$;

CREATE OR REPLACE FUNCTION hashindex.candidates(
    index_name text, query anycompatible, n integer DEFAULT NULL, effort integer DEFAULT NULL, filter text DEFAULT NULL,
    caller_path text DEFAULT current_setting('search_path')
)
RETURNS TABLE (id text, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 100
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name);
    s hashindex.index_set := hashindex._used_set(i);
    base text := format('%I.%I', i.schema_name, i.table_name);
    wanted integer := CASE WHEN coalesce(n, s.candidates) > 0 THEN coalesce(n, s.candidates) ELSE hashindex._refuse('n', n, '1 or more') END;
    asked {ext}.vector := CASE WHEN {ext}.vector_dims(query::{ext}.vector) = s.dimension THEN query::{ext}.vector ELSE hashindex._refuse_vector(query::{ext}.vector, s.dimension) END;
    held record := hashindex._set_sql(i, s, '$1');
    ranking text := format('%s %s $1::pg_catalog.text::%s', held.expression, held.operator, held.ranked_type);
    filter_path text := CASE WHEN filter IS NULL THEN current_setting('search_path') ELSE caller_path END;
    own_path text := current_setting('search_path');
    names text[];
    settings text[];
    path text;
    ranked text;
BEGIN
    IF filter IS NOT NULL THEN
        -- A filter is one condition, and not a part of a statement.
        PERFORM hashindex._estimate(format('SELECT FROM %s WHERE %s', base, filter), caller_path);
    END IF;
    EXECUTE format('SELECT (%s)::text', held.ranked_query) INTO ranked USING asked;
    SELECT array_agg(x.name), array_agg(x.value) INTO names, settings FROM hashindex._scan_settings(coalesce(effort, s.effort, wanted), 4.0 * wanted, true) x;
    settings := hashindex._put_settings(names, settings);
    path := set_config('search_path', filter_path, true);
    RETURN QUERY EXECUTE format(
        E'SELECT %s, %s FROM %s WHERE %I IS NOT NULL AND (%s\n) ORDER BY %s LIMIT %s', hashindex._key_text(base, i.key_columns), ranking, base, s.column_name,
        coalesce(filter, 'true'), ranking, wanted
    ) USING ranked;
    path := pg_catalog.set_config('search_path', own_path, true);
    settings := hashindex._put_settings(names, settings);
END
$$;

COMMENT ON FUNCTION hashindex.candidates(text, anycompatible, integer, integer, text, text) IS
    'keys of the rows nearest to a query in the order of the index''s set, with their distance there: bits that differ, or the distance of vectors';

CREATE OR REPLACE FUNCTION hashindex.explain_search(
    index_name text, query anycompatible, k integer DEFAULT 10, candidates integer DEFAULT NULL, effort integer DEFAULT NULL, filter text DEFAULT NULL,
    caller_path text DEFAULT current_setting('search_path')
)
RETURNS SETOF text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name);
    s hashindex.index_set := hashindex._used_set(i);
    wanted integer := greatest(coalesce(candidates, hashindex._candidates_for(k, s.candidates)), k);
    asked {ext}.vector := CASE WHEN {ext}.vector_dims(query::{ext}.vector) = s.dimension THEN query::{ext}.vector ELSE hashindex._refuse_vector(query::{ext}.vector, s.dimension) END;
    filter_path text := CASE WHEN filter IS NULL THEN current_setting('search_path') ELSE caller_path END;
    own_path text := current_setting('search_path');
    names text[];
    settings text[];
    path text;
    ranked text;
BEGIN
    IF filter IS NOT NULL THEN
        PERFORM hashindex._estimate(format('SELECT FROM %I.%I WHERE %s', i.schema_name, i.table_name, filter), caller_path);
    END IF;
    EXECUTE format('SELECT (%s)::text', (hashindex._set_sql(i, s, '$1')).ranked_query) INTO ranked USING asked;
    SELECT array_agg(x.name), array_agg(x.value) INTO names, settings
    FROM hashindex._scan_settings(coalesce(effort, s.effort, wanted), 4.0 * wanted, filter IS NOT NULL OR wanted > 1000) x;
    settings := hashindex._put_settings(names, settings);
    path := set_config('search_path', filter_path, true);
    RETURN QUERY EXECUTE 'EXPLAIN (ANALYZE, COSTS off, BUFFERS off) '
        || hashindex._set_statement(i, s, wanted, k, coalesce(filter, 'true')) USING asked::pg_catalog.text, ranked;
    path := pg_catalog.set_config('search_path', own_path, true);
    settings := hashindex._put_settings(names, settings);
END
$$;

COMMENT ON FUNCTION hashindex.explain_search(text, anycompatible, integer, integer, integer, text, text) IS
    'plan of the statement that a search of an index by a set of pgvector runs, with its times';
