-- Searches of an index by its name, other than search_NAME.

-- Candidates in lists, by search_NAME, and as many more as a filter leaves out.
CREATE OR REPLACE FUNCTION hashindex._list_candidates(
    i hashindex.index, query {ext}.vector, n integer, effort integer, filter text, tenant text, caller_path text
)
RETURNS TABLE (id text, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 100
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    shown text[] := hashindex._answer_keys(i);
    statement text := format(
        $statement$
        SELECT pg_catalog.count(*) AS given, (pg_catalog.array_agg(f.id ORDER BY f.hashindex_place) FILTER (WHERE f.matches))[:$1] AS ids,
            (pg_catalog.array_agg(f.distance ORDER BY f.hashindex_place) FILTER (WHERE f.matches))[:$1] AS distances
        FROM (
            SELECT %s AS id, s.distance, s.hashindex_place, EXISTS (SELECT FROM %s WHERE (%s) OPERATOR(pg_catalog.=) (%s) AND (%s
            )) AS matches
            FROM hashindex.%I($2, $3, $3, $4, by_code => true%s) WITH ORDINALITY s(%s, distance, hashindex_place)
        ) f$statement$,
        hashindex._key_text('s', shown), base, hashindex._columns_of(base, i.key_columns), hashindex._columns_of('s', shown), coalesce(filter, 'true'),
        'search_' || i.name, CASE WHEN i.tenant_column IS NOT NULL THEN format(', tenant => $5::%s, all_tenants => true', hashindex._tenant_type(i)) END,
        hashindex._columns_of(NULL, shown)
    );
    own_path text := current_setting('search_path');
    asked integer := n;
    found record;
    path text;
BEGIN
    LOOP
        path := set_config('search_path', caller_path, true);
        EXECUTE statement INTO found USING n, query, asked, effort, tenant;
        path := pg_catalog.set_config('search_path', own_path, true);
        EXIT WHEN cardinality(found.ids) = n OR found.given < asked;
        asked := least(4.0 * asked, 2147483647);
    END LOOP;
    RETURN QUERY SELECT * FROM unnest(found.ids, found.distances);
END
$$;

CREATE OR REPLACE FUNCTION hashindex.candidates(
    index_name text, query anycompatible, n integer DEFAULT NULL, effort integer DEFAULT NULL, filter text DEFAULT NULL,
    tenant text DEFAULT NULL, all_tenants boolean DEFAULT false, caller_path text DEFAULT current_setting('search_path')
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
    own_path text := current_setting('search_path');
    filter_path text := CASE WHEN filter IS NULL THEN own_path ELSE caller_path END;
    wanted integer;
    -- The filter and the tenant.
    condition text;
    matching double precision;
    visited double precision := 4.0;
    held record;
    ranking text;
    statement text;
    before jsonb;
    path text;
    ranked text;
BEGIN
    PERFORM hashindex._refuse_renamed(i);
    PERFORM hashindex._require_tenant(i.name, base, i.tenant_column, tenant, all_tenants);
    IF filter IS NOT NULL THEN
        -- A filter is one condition, and not a part of a statement.
        PERFORM hashindex._estimate(format('SELECT FROM %s WHERE %s', base, filter), caller_path);
    END IF;
    wanted := coalesce(n, s.candidates);
    IF wanted < 1 THEN
        PERFORM hashindex._refuse('n', n, '1 or more');
    ELSIF s.access IN ('lists', 'scan') THEN
        RETURN QUERY SELECT l.* FROM hashindex._list_candidates(i, query::{ext}.vector, wanted, effort, filter, tenant, filter_path) l;
        RETURN;
    ELSIF effort < 1 THEN
        PERFORM hashindex._refuse('effort', effort, '1 or more');
    END IF;
    condition := format(E'(%s\n) AND %s', coalesce(filter, 'true'), coalesce(hashindex._of_tenant(i, tenant), 'true'));
    IF filter IS NOT NULL OR tenant IS NOT NULL OR row_security_active(base) THEN
        -- As many rows are visited as are wanted of those that match.
        matching := (hashindex._estimate(format('SELECT FROM %s WHERE %s', base, condition), filter_path)).matching;
        visited := visited * greatest(1, hashindex._estimated_rows(base::regclass) / greatest(matching, 1));
    END IF;
    held := hashindex._set_sql(i, s, '$1');
    ranking := format('%s %s $1::pg_catalog.text::%s', held.expression, held.operator, held.ranked_type);
    EXECUTE format('SELECT (%s)::text', held.ranked_query) INTO ranked USING hashindex._checked_vector(query::{ext}.vector, s.dimension);
    statement := format(
        'SELECT %s, %s FROM %s WHERE %I IS NOT NULL AND %s ORDER BY %s LIMIT %s', hashindex._key_text(base, i.key_columns), ranking, base, s.column_name,
        condition, ranking, wanted
    );
    before := hashindex._put_settings(hashindex._scan_settings(coalesce(effort, s.effort, wanted), visited * wanted, true));
    path := set_config('search_path', filter_path, true);
    RETURN QUERY EXECUTE statement USING ranked;
    path := pg_catalog.set_config('search_path', own_path, true);
    before := hashindex._put_settings(before);
END
$$;

COMMENT ON FUNCTION hashindex.candidates(text, anycompatible, integer, integer, text, text, boolean, text) IS
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
    asked {ext}.vector := hashindex._checked_vector(query::{ext}.vector, s.dimension);
    filter_path text := CASE WHEN filter IS NULL THEN current_setting('search_path') ELSE caller_path END;
    own_path text := current_setting('search_path');
    statement text;
    before jsonb;
    path text;
    ranked text;
BEGIN
    PERFORM hashindex._refuse_renamed(i);
    IF s.access IN ('lists', 'scan') THEN
        RAISE EXCEPTION 'a search of index "%" runs several statements, since it has lists', i.name
            USING ERRCODE = 'feature_not_supported', HINT = 'Load auto_explain, which shows the statements of functions.';
    ELSIF effort < 1 THEN
        PERFORM hashindex._refuse('effort', effort, '1 or more');
    END IF;
    IF filter IS NOT NULL THEN
        PERFORM hashindex._estimate(format('SELECT FROM %I.%I WHERE %s', i.schema_name, i.table_name, filter), caller_path);
    END IF;
    EXECUTE format('SELECT (%s)::text', (hashindex._set_sql(i, s, '$1')).ranked_query) INTO ranked USING asked;
    statement := 'EXPLAIN (ANALYZE, COSTS off, BUFFERS off) ' || hashindex._set_statement(i, s, wanted, k, coalesce(filter, 'true'));
    before := hashindex._put_settings(hashindex._scan_settings(coalesce(effort, s.effort, wanted), 4.0 * wanted, filter IS NOT NULL OR wanted > 1000));
    path := set_config('search_path', filter_path, true);
    RETURN QUERY EXECUTE statement USING asked::pg_catalog.text, ranked;
    path := pg_catalog.set_config('search_path', own_path, true);
    before := hashindex._put_settings(before);
END
$$;

COMMENT ON FUNCTION hashindex.explain_search(text, anycompatible, integer, integer, integer, text, text) IS
    'plan of the statement that a search of an index by a set of pgvector runs, with its times';
