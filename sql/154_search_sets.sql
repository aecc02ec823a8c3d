-- Searches of sets of pgvector that are not the plain ones of search_NAME.

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
    IF i.tenant_column IS NOT NULL AND filter IS NULL AND NOT row_security_active(base) AND has_column_privilege(base, i.tenant_column, 'SELECT') THEN
        PERFORM hashindex._refuse_all_tenants(i.name, i.tenant_column);
    ELSIF filter IS NOT NULL THEN
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
