-- The one measure of recall: queries that are drawn from a table, their true neighbours, and what a set finds of them.

-- By what part of the difference of two other rows a row is moved to be a query. A graph finds the rows that stand in it by their own links, and
-- other queries less well. Moved so far, rows were found like held-out queries, within .02 and mostly less: vectors by .4, codes by .3 (measured on
-- text of 384 and 768 dimensions, descriptors, digits; recalls above .9). Lists have no such links: there a row is like any other query.
CREATE OR REPLACE FUNCTION hashindex._moved_by(s hashindex.index_set) RETURNS real
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN CASE WHEN s.access = 'hnsw' THEN CASE WHEN s.model_id IS NULL THEN 0.4 ELSE 0.3 END ELSE 0 END;
END
$$;

-- Queries of a table: the rows whose keys have the least hashes, so the same ones again, each moved by a part of the difference of the next two; and
-- the keys and tenants of these rows. A row is left out of its own answers.
CREATE OR REPLACE FUNCTION hashindex._draw_queries(
    i hashindex.index, column_name text, moved_by real, sample integer, seed bigint DEFAULT 0, tenant text DEFAULT NULL,
    OUT ids text[], OUT queries {ext}.vector[], OUT tenants text[]
)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    base regclass := hashindex._base_of(i);
    n integer;
BEGIN
    PERFORM hashindex._check_vector_column(base, column_name, NULL);
    -- Citus runs no query on shards within another.
    EXECUTE format(
        'SELECT array_agg(r.id), array_agg(r.query), array_agg(r.tenant) FROM (SELECT %1$s AS id, b.%2$I::{ext}.vector AS query, %3$s AS tenant '
        'FROM %4$s b WHERE b.%2$I IS NOT NULL%5$s ORDER BY hashtextextended(%1$s, $2) LIMIT $1) r',
        hashindex._key_text('b', i.key_columns), column_name, CASE WHEN i.tenant_column IS NULL THEN 'NULL::text' ELSE format('b.%I::text', i.tenant_column) END, base,
        ' AND ' || hashindex._of_tenant(i, tenant, 'b')
    ) INTO ids, queries, tenants USING sample, seed;
    n := cardinality(queries);
    IF moved_by > 0 AND n > 2 THEN
        queries := ARRAY(
            -- The components of a halfvec end at 65504; a vector of zeros stays one. Operators written by schema bind alike, so the product is in brackets.
            SELECT CASE WHEN {ext}.vector_norm(a) > 0 AND greatest({ext}.vector_norm(a), {ext}.vector_norm(b), {ext}.vector_norm(c)) < 30000
                THEN a OPERATOR({ext}.+) ((b OPERATOR({ext}.-) c) OPERATOR({ext}.*) array_fill(moved_by, ARRAY[{ext}.vector_dims(a)])::{ext}.vector) ELSE a END
            FROM (SELECT p, queries[p] AS a, queries[p % n + 1] AS b, queries[(p + 1) % n + 1] AS c FROM generate_series(1, n) p) q ORDER BY p
        );
    END IF;
END
$$;

-- The distance of the k-th row next to each query, but for its own row, and how many such rows there are. With tenants, the rows of the query's.
-- With `seconds`, of the first five queries alone where all take longer.
CREATE OR REPLACE FUNCTION hashindex._true_neighbours(
    i hashindex.index, column_name text, k integer, ids text[], queries {ext}.vector[], tenants text[], OUT worst double precision[], OUT wanted integer[],
    seconds double precision DEFAULT NULL
)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    base regclass := hashindex._base_of(i);
    ended timestamptz := clock_timestamp() + make_interval(secs => seconds);
    found record;
BEGIN
    FOR place IN 1..coalesce(cardinality(queries), 0) LOOP
        EXIT WHEN place > 5 AND clock_timestamp() > ended;
        SELECT max(x.distance) AS worst, count(*) AS n INTO found FROM (
            SELECT x.distance FROM hashindex._exact_search(
                base, i.key_columns, column_name, i.metric, queries[place], k + 1, hashindex._of_tenant(i, tenants[place]), 'pg_catalog, pg_temp'
            ) x
            WHERE x.id <> ids[place] ORDER BY x.distance LIMIT k
        ) x;
        worst[place] := found.worst;
        wanted[place] := found.n;
    END LOOP;
END
$$;

-- Recall by the numbers of rows that each query found and wanted; and the lower end of its interval, which the recall of other such queries exceeds
-- with a probability of .95, as Answers.least_recall in quality/measuring.py.
CREATE OR REPLACE FUNCTION hashindex._recall_of(found integer[], wanted integer[], OUT recall double precision, OUT least_recall double precision)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
    SELECT r.recall, CASE WHEN r.n < 2 THEN r.recall ELSE greatest(0, r.recall - 1.645 * r.deviation / sqrt(r.n)) END
    FROM (
        SELECT sum(least(f.n, w.n))::double precision / nullif(sum(w.n), 0) AS recall, count(*) AS n,
            coalesce(stddev_samp(least(f.n, w.n)::double precision / w.n), 0) AS deviation
        FROM unnest(found) WITH ORDINALITY f(n, place) JOIN unnest(wanted) WITH ORDINALITY w(n, place) USING (place) WHERE w.n > 0
    ) r;
END;

-- Recall of a set for queries whose true neighbours are known, with n candidates and an effort. Lists are searched by their own function, each
-- query within its tenant.
CREATE OR REPLACE FUNCTION hashindex._recall_of_set(
    i hashindex.index, s hashindex.index_set, ids text[], queries {ext}.vector[], tenants text[], worst double precision[], wanted integer[], k integer,
    n integer, effort integer, OUT recall double precision, OUT least_recall double precision
)
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path FROM CURRENT
SET jit = off
AS $$
DECLARE
    lists boolean := s.encoded IS NOT NULL;
    -- A query's own row may be one of the candidates.
    statement text := CASE WHEN lists THEN format(
        'SELECT count(*) FILTER (WHERE f.distance <= $3 AND %s <> $4) FROM hashindex.%I($1, %s, %s, %s%s) f', hashindex._key_text('f', hashindex._answer_keys(i)),
        'search_' || CASE s.state WHEN 'used' THEN i.name ELSE '~' || s.id END, k + 1, n + 1, coalesce(effort::text, 'NULL'),
        CASE WHEN i.tenant_column IS NOT NULL THEN format(', tenant => $5::%s', hashindex._tenant_type(i)) END
    ) ELSE format(
        'SELECT count(*) FILTER (WHERE f.distance <= $3 AND f.id <> $4) FROM (%s) f', hashindex._set_statement(i, s, n + 1, k + 1)
    ) END;
    encode text := CASE WHEN NOT lists THEN format('SELECT (%s)::text', (hashindex._set_sql(i, s, '$1')).ranked_query) END;
    before jsonb := CASE WHEN NOT lists THEN hashindex._put_settings(hashindex._scan_settings(effort, 1, false)) END;
    counted integer;
    found integer[];
    ranked text;
BEGIN
    FOR place IN 1..cardinality(wanted) LOOP
        IF lists AND i.tenant_column IS NOT NULL AND tenants[place] IS NULL THEN
            counted := wanted[place];
        ELSIF lists THEN
            EXECUTE statement INTO counted USING queries[place], NULL::text, worst[place], ids[place], tenants[place];
        ELSE
            EXECUTE encode INTO ranked USING queries[place];
            EXECUTE statement INTO counted USING queries[place]::text, ranked, worst[place], ids[place];
        END IF;
        found[place] := counted;
    END LOOP;
    before := hashindex._put_settings(before);
    SELECT r.* INTO recall, least_recall FROM hashindex._recall_of(found, wanted) r;
END
$$;

-- The fewest candidates, and the least effort, with which a set reaches the goal, and the recall with them: what is measured is the goal or more,
-- and the lower end of its interval at most .01 less. What the set has already stays. Where no statement would use pgvector's index yet, a measure
-- would be of another way: then the model's figures stand, and recall is NULL.
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
    uses boolean := coalesce(s.encoded, hashindex._uses_relation(i, s));
    largest text;
    drawn record;
    truth record;
    known record;
    -- Enough not to hide rows from the candidates that are tried first.
    most integer := CASE s.access WHEN 'ivfflat' THEN 1000 WHEN 'lists' THEN 320 END;
    n integer;
    effort integer;
BEGIN
    IF uses AND s.encoded AND i.tenant_column IS NOT NULL AND s.candidates IS NULL THEN
        -- The largest tenant needs the most.
        EXECUTE format('SELECT c.tenant::text FROM %s c WHERE c.tenant IS NOT NULL GROUP BY c.tenant ORDER BY count(*) DESC, c.tenant LIMIT 1', hashindex._table_of(s, 'codes'))
        INTO largest;
    END IF;
    IF uses THEN
        -- 300,000 rows are compared with a query in 30 ms, and ten millions beyond memory in minutes.
        drawn := hashindex._draw_queries(
            i, s.column_name, hashindex._moved_by(s), coalesce(sample, greatest(20, least(100, 3e7 / greatest(1, hashindex._rows_of(base))))::integer),
            tenant => largest
        );
        truth := hashindex._true_neighbours(i, s.column_name, 10, drawn.ids, drawn.queries, CASE WHEN s.encoded THEN drawn.tenants END, 60);
        uses := 0 < ANY (truth.wanted);
    END IF;
    IF uses IS NOT true THEN
        s.candidates := coalesce(s.candidates, CASE WHEN used.id IS NULL THEN 40 ELSE hashindex._usual_candidates(i, used) END);
        -- Measured on 300,000 text embeddings with 40 candidates: 80 lists find .955 of the ten nearest.
        s.effort := coalesce(s.effort, CASE s.access WHEN 'ivfflat' THEN 20 WHEN 'lists' THEN 80 END);
        RETURN;
    END IF;
    FOREACH n IN ARRAY CASE WHEN s.candidates IS NOT NULL THEN ARRAY[s.candidates] ELSE '{20,30,40,50,60,80,100,120,160,200,300,400,800}' END LOOP
        effort := coalesce(s.effort, most, CASE WHEN s.access <> 'scan' THEN n + 1 END);
        known := hashindex._recall_of_set(i, s, drawn.ids, drawn.queries, drawn.tenants, truth.worst, truth.wanted, 10, n, effort);
        EXIT WHEN known.recall >= goal AND known.least_recall >= goal - 0.01;
    END LOOP;
    s.candidates := n;
    IF s.effort IS NULL AND (in_parts OR most IS NOT NULL) THEN
        -- Candidates may be too few for the goal: then as much as more effort finds is enough. Of lists at least 24 are read, so that a small
        -- table may grow: within 23 to 32 lists searches of 300,000 text embeddings reached .95.
        goal := least(goal, known.recall, known.least_recall + 0.01);
        FOR place IN 0..20 LOOP
            effort := CASE s.access WHEN 'ivfflat' THEN 2 ^ place WHEN 'lists' THEN least(1000, 24 * 2 ^ (place / 2.0)) ELSE ceil(n * (place + 2) / 12.0) END;
            known := hashindex._recall_of_set(i, s, drawn.ids, drawn.queries, drawn.tenants, truth.worst, truth.wanted, 10, n, effort);
            EXIT WHEN known.recall >= goal AND known.least_recall >= goal - 0.01 OR effort >= 1000 OR place = 10 AND most IS NULL;
        END LOOP;
        s.effort := effort;
    END IF;
    recall := known.recall;
END
$$;
