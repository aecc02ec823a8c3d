-- Measures what a set takes to find the nearest rows: rows of the table are the queries.

-- Rows of the table that serve as queries: their keys and vectors, the distance of the k-th row next to each, and how many such rows there are.
CREATE OR REPLACE FUNCTION hashindex._sample_queries(
    i hashindex.index, column_name text, k integer, sample integer, OUT ids text[], OUT queries {ext}.vector[], OUT worst double precision[], OUT wanted bigint
)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    base regclass := hashindex._base_of(i);
    found record;
BEGIN
    PERFORM hashindex._check_vector_column(base, column_name, NULL);
    -- Citus runs no query on shards within another.
    EXECUTE format(
        'SELECT array_agg(r.id), array_agg(r.query) FROM (SELECT %s AS id, b.%I::{ext}.vector AS query FROM %s b WHERE b.%I IS NOT NULL ORDER BY random() LIMIT $1) r',
        hashindex._key_text('b', i.key_columns), column_name, base, column_name
    ) INTO ids, queries USING sample;
    wanted := 0;
    FOR place IN 1..coalesce(cardinality(ids), 0) LOOP
        SELECT max(x.distance) AS worst, count(*) AS n INTO found FROM (
            SELECT x.distance FROM hashindex._exact_search(base, i.key_columns, column_name, i.metric, queries[place], k + 1) x
            WHERE x.id <> ids[place] ORDER BY x.distance LIMIT k
        ) x;
        worst[place] := found.worst;
        wanted := wanted + found.n;
    END LOOP;
    IF wanted = 0 THEN
        ids := NULL;
    END IF;
END
$$;

-- Share of the true neighbours of the queries of _sample_queries that a set finds with n candidates and an effort.
CREATE OR REPLACE FUNCTION hashindex._recall_of_set(
    i hashindex.index, s hashindex.index_set, ids text[], queries {ext}.vector[], worst double precision[], wanted bigint, k integer, n integer, effort integer
)
RETURNS double precision
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    statement text := format('SELECT count(*) FILTER (WHERE f.id <> $3 AND f.distance <= $4) FROM (%s) f', hashindex._set_statement(i, s, n, k + 1));
    encode text := format('SELECT (%s)::text', (hashindex._set_sql(i, s, '$1')).ranked_query);
    names text[];
    settings text[];
    found bigint := 0;
    counted bigint;
    ranked text;
BEGIN
    SELECT array_agg(x.name), array_agg(x.value) INTO names, settings FROM hashindex._scan_settings(effort, 1, false) x;
    settings := hashindex._put_settings(names, settings);
    FOR place IN 1..cardinality(queries) LOOP
        EXECUTE encode INTO ranked USING queries[place];
        EXECUTE statement INTO counted USING queries[place]::text, ranked, ids[place], worst[place];
        found := found + least(counted, k);
    END LOOP;
    settings := hashindex._put_settings(names, settings);
    RETURN found::double precision / nullif(wanted, 0);
END
$$;

-- The fewest candidates, and the least effort, with which a set finds as many of the true neighbours of sampled rows as wanted, and the recall
-- with them. Where no statement would use pgvector's index yet, a measure would be of another way: then the model's figures stand, and recall is NULL.
CREATE OR REPLACE FUNCTION hashindex._measure_set(
    i hashindex.index, INOUT s hashindex.index_set, OUT recall double precision, goal double precision DEFAULT 0.95, sample integer DEFAULT NULL
)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := hashindex._base_of(i);
    used hashindex.model := m FROM hashindex.model m WHERE m.id = s.model_id;
    in_parts boolean := c.relkind = 'p' OR hashindex._is_sharded(base) FROM pg_class c WHERE c.oid = base;
    uses boolean := hashindex._uses_relation(i, s);
    known record;
    n integer;
    effort integer;
BEGIN
    IF uses THEN
        -- 300,000 rows are compared with a query in 30 ms.
        known := hashindex._sample_queries(i, s.column_name, 10, coalesce(sample, greatest(20, least(100, 3e7 / greatest(1, hashindex._rows_of(base))))::integer));
        uses := known.ids IS NOT NULL;
    END IF;
    IF NOT uses THEN
        s.candidates := coalesce(s.candidates, CASE WHEN used.id IS NULL THEN 40 ELSE hashindex._usual_candidates(i, used) END);
        s.effort := coalesce(s.effort, CASE s.access WHEN 'ivfflat' THEN 20 END);
        RETURN;
    END IF;
    FOREACH n IN ARRAY CASE WHEN s.candidates IS NOT NULL THEN ARRAY[s.candidates] ELSE '{20,30,40,50,60,80,100,120,160,200,300,400,800}' END LOOP
        recall := hashindex._recall_of_set(
            i, s, known.ids, known.queries, known.worst, known.wanted, 10, n, coalesce(s.effort, CASE s.access WHEN 'ivfflat' THEN 1000 ELSE n END)
        );
        EXIT WHEN recall >= goal;
    END LOOP;
    s.candidates := n;
    IF s.effort IS NULL AND (in_parts OR s.access = 'ivfflat') THEN
        FOR place IN 0..10 LOOP
            effort := CASE s.access WHEN 'ivfflat' THEN 2 ^ place ELSE ceil(n * (place + 2) / 12.0) END;
            recall := hashindex._recall_of_set(i, s, known.ids, known.queries, known.worst, known.wanted, 10, n, effort);
            EXIT WHEN recall >= goal OR effort >= 1000;
        END LOOP;
        s.effort := effort;
    END IF;
END
$$;
