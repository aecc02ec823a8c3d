-- Measures the recall of an index on its own table, for whoever has SQL alone: as Answers.recall in quality/measuring.py does, which also times.

CREATE OR REPLACE FUNCTION hashindex.exact_search(index_name text, query anycompatible, k integer DEFAULT 10)
RETURNS TABLE (id text, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name);
    dimension integer := s.dimension FROM hashindex.index_set s WHERE s.index_name = i.name ORDER BY s.state = 'used' DESC LIMIT 1;
    given {ext}.vector := query;
    checked {ext}.vector := CASE WHEN {ext}.vector_dims(given) = dimension THEN {ext}.vector(given, dimension, true) ELSE hashindex._refuse_vector(given, dimension) END;
    wanted integer := CASE WHEN k > 0 THEN k ELSE hashindex._refuse('k', k, '1 or more') END;
BEGIN
    RETURN QUERY SELECT e.* FROM hashindex._exact_search(
        format('%I.%I', i.schema_name, i.table_name)::regclass, i.key_columns, i.column_name, i.metric, checked, wanted
    ) e;
END
$$;

COMMENT ON FUNCTION hashindex.exact_search(text, anycompatible, integer) IS
    'nearest rows by exact distance, compared with every row of an index''s table';

CREATE OR REPLACE FUNCTION hashindex.recall(
    index_name text, k integer DEFAULT 10, sample integer DEFAULT 100, candidates integer DEFAULT NULL
)
RETURNS double precision
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex._require(index_name);
    ids text[];
    queries {ext}.vector[];
    worst double precision;
    n bigint;
    wanted bigint := 0;
    found bigint := 0;
BEGIN
    IF k IS NULL OR k NOT BETWEEN 1 AND 1000000 THEN
        PERFORM hashindex._refuse('k', k, '1 to 1000000');
    ELSIF sample IS NULL OR sample < 1 THEN
        PERFORM hashindex._refuse('sample', sample, '1 or more');
    END IF;
    EXECUTE format(
        'SELECT array_agg(r.id), array_agg(r.query) FROM (SELECT %s AS id, b.%I::{ext}.vector AS query FROM %s b WHERE b.%I IS NOT NULL ORDER BY random() LIMIT $1) r',
        hashindex._key_text('b', i.key_columns), i.column_name, format('%I.%I', i.schema_name, i.table_name)::regclass, i.column_name
    ) INTO ids, queries USING sample;
    FOR place IN 1..coalesce(cardinality(ids), 0) LOOP
        -- A row always finds itself, so one more is searched for, and the row left out. Any row as near as the k-th is as good an answer.
        SELECT max(x.distance), count(*) INTO worst, n FROM (
            SELECT x.distance FROM hashindex.exact_search(index_name, queries[place], k + 1) x WHERE x.id <> ids[place] ORDER BY x.distance LIMIT k
        ) x;
        wanted := wanted + n;
        SELECT count(*) INTO n FROM (
            SELECT s.distance FROM hashindex.search(index_name, queries[place], k + 1, candidates, all_tenants => i.tenant_column IS NOT NULL) s
            WHERE s.id <> ids[place] ORDER BY s.distance LIMIT k
        ) s WHERE s.distance <= worst;
        found := found + n;
    END LOOP;
    IF wanted = 0 THEN
        RAISE EXCEPTION 'index "%" has fewer than two rows to compare', index_name
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN found::double precision / wanted;
END
$$;

COMMENT ON FUNCTION hashindex.recall(text, integer, integer, integer) IS
    'recall@k of an index for a sample of its own rows as queries, ties counted as correct';
