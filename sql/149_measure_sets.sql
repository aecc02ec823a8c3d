-- Measures what a set takes to find the nearest rows of queries like the table's rows.

-- Queries beside rows of the table, each moved by .35 of the difference of two others: a graph finds rows that stand in it by their own links,
-- and other queries less well. With them, the distance of the k-th row next to each, and how many such rows there are.
CREATE OR REPLACE FUNCTION hashindex._sample_queries(
    i hashindex.index, column_name text, k integer, sample integer, OUT queries {ext}.vector[], OUT worst double precision[], OUT wanted bigint
)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    base regclass := hashindex._base_of(i);
    found record;
    n integer;
BEGIN
    PERFORM hashindex._check_vector_column(base, column_name, NULL);
    -- Citus runs no query on shards within another.
    EXECUTE format(
        'SELECT array_agg(r.query) FROM (SELECT b.%I::{ext}.vector AS query FROM %s b WHERE b.%I IS NOT NULL ORDER BY random() LIMIT $1) r',
        column_name, base, column_name
    ) INTO queries USING sample;
    n := cardinality(queries);
    queries := ARRAY(
        -- The components of a halfvec end at 65504.
        SELECT CASE WHEN greatest({ext}.vector_norm(a), {ext}.vector_norm(b), {ext}.vector_norm(c)) < 30000
            THEN a OPERATOR({ext}.+) (b OPERATOR({ext}.-) c) OPERATOR({ext}.*) array_fill(0.35::real, ARRAY[{ext}.vector_dims(a)])::{ext}.vector ELSE a END
        FROM (SELECT p, queries[p] AS a, queries[p % n + 1] AS b, queries[(p + 1) % n + 1] AS c FROM generate_series(1, n) p) q ORDER BY p
    );
    wanted := 0;
    FOR place IN 1..coalesce(n, 0) LOOP
        SELECT max(x.distance) AS worst, count(*) AS n INTO found FROM hashindex._exact_search(base, i.key_columns, column_name, i.metric, queries[place], k) x;
        worst[place] := found.worst;
        wanted := wanted + found.n;
    END LOOP;
END
$$;

-- Share of the true neighbours of the queries of _sample_queries that a set finds with n candidates and an effort.
CREATE OR REPLACE FUNCTION hashindex._recall_of_set(
    i hashindex.index, s hashindex.index_set, queries {ext}.vector[], worst double precision[], wanted bigint, k integer, n integer, effort integer
)
RETURNS double precision
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    statement text := format('SELECT count(*) FILTER (WHERE f.distance <= $3) FROM (%s) f', hashindex._set_statement(i, s, n, k));
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
        EXECUTE statement INTO counted USING queries[place]::text, ranked, worst[place];
        found := found + counted;
    END LOOP;
    settings := hashindex._put_settings(names, settings);
    RETURN found::double precision / nullif(wanted, 0);
END
$$;

-- Share of the true neighbours that a set of lists finds, by its own search function: of queries beside rows; with tenants, of some rows within
-- their tenants. The same rows each time, so that two sets can be compared.
CREATE OR REPLACE FUNCTION hashindex._recall_of_lists(i hashindex.index, s hashindex.index_set, sample integer DEFAULT 100) RETURNS double precision
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    base regclass := hashindex._base_of(i);
    statement text := format(
        'SELECT count(*) FILTER (WHERE f.distance <= $2) FROM hashindex.%I($1, 10%s) f', 'search_' || CASE s.state WHEN 'used' THEN i.name ELSE '~' || s.id END,
        CASE WHEN i.tenant_column IS NOT NULL THEN format(', tenant => $3::%s', hashindex._tenant_type(i)) END
    );
    known record;
    asked record;
    worst double precision;
    counted bigint;
    wanted bigint := 0;
    found bigint := 0;
BEGIN
    IF i.tenant_column IS NULL THEN
        known := hashindex._sample_queries(i, s.column_name, 10, sample);
        FOR place IN 1..coalesce(cardinality(known.queries), 0) LOOP
            EXECUTE statement INTO counted USING known.queries[place], known.worst[place];
            found := found + counted;
        END LOOP;
        RETURN found::double precision / nullif(known.wanted, 0);
    END IF;
    FOR asked IN EXECUTE format(
        'SELECT b.%1$I::{ext}.vector AS query, b.%2$I::text AS tenant FROM %3$s b WHERE b.%1$I IS NOT NULL AND b.%2$I IS NOT NULL AND hashindex._fits(b.%2$I::text) ORDER BY md5(%4$s) LIMIT %5$s',
        s.column_name, i.tenant_column, base, hashindex._key_text('b', i.key_columns), least(sample, 1000)
    ) LOOP
        SELECT max(x.distance), count(*) INTO worst, counted
        FROM hashindex._exact_search(base, i.key_columns, s.column_name, i.metric, asked.query, 10, format('%I = %L', i.tenant_column, asked.tenant)) x;
        wanted := wanted + counted;
        EXECUTE statement INTO counted USING asked.query, worst, asked.tenant;
        found := found + counted;
    END LOOP;
    RETURN found::double precision / nullif(wanted, 0);
END
$$;

-- The fewest candidates, and the least effort, with which a set finds as many of the true neighbours of such queries as wanted, and the recall
-- with them. Text embeddings that were held back were found .02 less well: so the goal is .97 where .95 is wanted (measured). Where no statement would use pgvector's index yet, a measure would be of another way: then the model's figures stand, and recall is NULL.
CREATE OR REPLACE FUNCTION hashindex._measure_set(
    i hashindex.index, INOUT s hashindex.index_set, OUT recall double precision, goal double precision DEFAULT 0.97, sample integer DEFAULT NULL
)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base regclass := hashindex._base_of(i);
    used hashindex.model := m FROM hashindex.model m WHERE m.id = s.model_id;
    in_parts boolean := c.relkind = 'p' OR hashindex._is_sharded(base) FROM pg_class c WHERE c.oid = base;
    uses boolean := s.encoded IS NULL AND hashindex._uses_relation(i, s);
    known record;
    n integer;
    effort integer;
BEGIN
    IF s.encoded THEN
        recall := hashindex._recall_of_lists(i, s);
        RETURN;
    ELSIF uses THEN
        -- 300,000 rows are compared with a query in 30 ms.
        known := hashindex._sample_queries(i, s.column_name, 10, coalesce(sample, greatest(20, least(100, 3e7 / greatest(1, hashindex._rows_of(base))))::integer));
        uses := known.wanted > 0;
    END IF;
    IF NOT uses THEN
        s.candidates := coalesce(s.candidates, CASE WHEN used.id IS NULL THEN 40 ELSE hashindex._usual_candidates(i, used) END);
        s.effort := coalesce(s.effort, CASE s.access WHEN 'ivfflat' THEN 20 END);
        RETURN;
    END IF;
    FOREACH n IN ARRAY CASE WHEN s.candidates IS NOT NULL THEN ARRAY[s.candidates] ELSE '{20,30,40,50,60,80,100,120,160,200,300,400,800}' END LOOP
        recall := hashindex._recall_of_set(
            i, s, known.queries, known.worst, known.wanted, 10, n, coalesce(s.effort, CASE s.access WHEN 'ivfflat' THEN 1000 ELSE n END)
        );
        EXIT WHEN recall >= goal;
    END LOOP;
    s.candidates := n;
    IF s.effort IS NULL AND (in_parts OR s.access = 'ivfflat') THEN
        FOR place IN 0..10 LOOP
            effort := CASE s.access WHEN 'ivfflat' THEN 2 ^ place ELSE ceil(n * (place + 2) / 12.0) END;
            recall := hashindex._recall_of_set(i, s, known.queries, known.worst, known.wanted, 10, n, effort);
            EXIT WHEN recall >= goal OR effort >= 1000;
        END LOOP;
        s.effort := effort;
    END IF;
END
$$;
