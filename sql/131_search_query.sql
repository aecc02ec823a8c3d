-- The text of the queries that searches run: candidates by code, answers by exact distance. Terms are
-- SQL for what varies from call to call, parameters or variables:
--   query   the vector                 code    its code, bit(n)
--   k       answers wanted             masks   of weight_planes, each bit(n)
--   kept    candidates wanted          masked  the query's code under each mask
--   lists   landmarks to probe         probes  how many
-- Operators of pgvector are qualified, since a text may run under a caller's path.

-- Rows (id, code, far) of the codes, the nearest by Hamming distance first (in any order where the
-- term "order" is none), within the term "threshold" where there is one. Ordered by bit_count: an HNSW
-- index that somebody made on the codes would turn an order by pgvector's operator into a guess.
CREATE OR REPLACE FUNCTION hashindex.near_codes(
    i hashindex.index, access text, terms jsonb, condition text DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    id text := 'hashindex_codes.id';
    code text := 'hashindex_codes.code';
    source text := format('%I.%I hashindex_codes', i.code_schema, i.code_table);
    far text;
BEGIN
    IF access = 'landmarks' THEN
        -- OFFSET: each entry is unpacked once, not once for its id and once for its code.
        source := format(
            '(SELECT unnest(hashindex_list.ids) AS id, unnest(hashindex_list.codes) AS code '
            'FROM hashindex.%I hashindex_list WHERE hashindex_list.landmark = ANY (%s) OFFSET 0) '
            'hashindex_codes',
            i.storage || '_lists', terms ->> 'lists'
        );
    ELSIF i.layout = 'column' THEN
        id := format('%s.%I', base, i.id_column);
        code := format('%s.%I', base, i.code_column);
        source := base;
    END IF;
    IF condition IS NOT NULL AND source <> base THEN
        -- Bare names in it are those of the table.
        condition := format(
            'EXISTS (SELECT FROM %s WHERE %s.%I = hashindex_codes.id AND (%s))', base, base, i.id_column, condition
        );
    END IF;
    far := format('bit_count(%s # %s)', code, terms ->> 'code');
    RETURN format(
        $query$SELECT %1$s AS id, %2$s AS code, %3$s AS far
    FROM %4$s
    WHERE %2$s IS NOT NULL%5$s%6$s%7$s$query$,
        id, code, far, source, ' AND (' || condition || ')',
        CASE WHEN terms ? 'threshold' THEN format(
            ' AND %s %s %s <= %s', code, hashindex.distance_operator('hamming'),
            terms ->> 'code', terms ->> 'threshold'
        ) END,
        CASE
            WHEN terms ->> 'order' = 'none' THEN ''
            -- A second key would keep the index from being used.
            WHEN access = 'hnsw' THEN format(
                ' ORDER BY %s %s %s', code, hashindex.distance_operator('hamming'), terms ->> 'code'
            )
            ELSE format(' ORDER BY far, %s', id)
        END
    );
END
$$;

COMMENT ON FUNCTION hashindex.near_codes(hashindex.index, text, jsonb, text) IS
    'text of the query for the codes of an index by Hamming distance, from all or by an access path';

-- How many of the nearest by Hamming distance the weighted order is applied to: it costs four times
-- as much.
CREATE OR REPLACE FUNCTION hashindex.pool(kept text, access text, weighted boolean)
RETURNS text
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN CASE
        WHEN NOT weighted THEN kept
        WHEN access = 'scan' THEN format('greatest(10 * %s::bigint, 2000)', kept)
        -- Where each of them has its price: to be looked up, or to be found in a graph.
        ELSE format('greatest(2 * %s::bigint, 400)', kept)
    END;
END
$$;

COMMENT ON FUNCTION hashindex.pool(text, text, boolean) IS
    'SQL for how many codes are kept by Hamming distance before they are ordered by weights';

-- Of near rows, the candidates (id, far), in order.
CREATE OR REPLACE FUNCTION hashindex.candidates(
    near text, access text, terms jsonb, weighted boolean
)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    far text := CASE WHEN NOT weighted THEN 'hashindex_near.far' ELSE (
        -- A bit under the mask counts where the codes differ.
        SELECT string_agg(
            format(
                '%s * ((hashindex_near.code & %s) %s %s)', 1 << (u.position - 1)::integer,
                u.mask, hashindex.distance_operator('hamming'), u.masked
            ),
            ' + ' ORDER BY u.position
        )
        FROM ROWS FROM (
            jsonb_array_elements_text(terms -> 'masks'), jsonb_array_elements_text(terms -> 'masked')
        ) WITH ORDINALITY u(mask, masked, position)
    ) END;
BEGIN
    RETURN format(
        $query$SELECT hashindex_near.id, %s AS far
    FROM (%s) hashindex_near %s
    ORDER BY far, hashindex_near.id
    LIMIT %s$query$,
        -- A row is in two lists; in more, with former codes, where it changed.
        CASE WHEN access = 'landmarks' THEN format('min(%s)', far) ELSE far END, near,
        CASE WHEN access = 'landmarks' THEN 'GROUP BY hashindex_near.id' END, terms ->> 'kept'
    );
END
$$;

COMMENT ON FUNCTION hashindex.candidates(text, text, jsonb, boolean) IS
    'text of the query for the candidates, from the text of one for near codes';

CREATE OR REPLACE FUNCTION hashindex.candidate_ids(
    near text, access text, terms jsonb, weighted boolean
)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        'SELECT hashindex_candidate.id FROM (%s) hashindex_candidate',
        hashindex.candidates(near, access, terms, weighted)
    );
END
$$;

COMMENT ON FUNCTION hashindex.candidate_ids(text, text, jsonb, boolean) IS
    'text of the query for the ids of the candidates, from the text of one for near codes';

-- The answers. The exact distance must not stand in the query for candidates, where it would be
-- computed for every row. It is that of the column's own type: beside a halfvec PostgreSQL makes one
-- of the query, which has to fit into it then.
CREATE OR REPLACE FUNCTION hashindex.answers(i hashindex.index, ids text, terms jsonb)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    RETURN format(
        $query$SELECT %1$s.%2$I AS id, %1$s.%3$I %4$s %5$s AS distance
    FROM %1$s
    WHERE %1$s.%2$I = ANY (%6$s) AND %1$s.%3$I IS NOT NULL
    ORDER BY distance, id
    LIMIT %7$s$query$,
        format('%I.%I', i.schema_name, i.table_name), i.id_column, i.column_name,
        hashindex.distance_operator(i.metric), terms ->> 'query', ids, terms ->> 'k'
    );
END
$$;

COMMENT ON FUNCTION hashindex.answers(hashindex.index, text, jsonb) IS
    'text of the query for the nearest of given ids, by exact distance';

-- All codes, and none but the nearest sorted: where a threshold is known, rows beyond it are dropped
-- before they are. If that leaves too few, everything is sorted after all.
CREATE OR REPLACE FUNCTION hashindex.scan_query(i hashindex.index, terms jsonb, weighted boolean)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    pool text := hashindex.pool(terms ->> 'kept', 'scan', weighted);
    every text := hashindex.candidate_ids(
        format('%s LIMIT %s', hashindex.near_codes(i, 'scan', terms - 'threshold'), pool),
        'scan', terms, weighted
    );
BEGIN
    IF NOT terms ? 'threshold' THEN
        RETURN hashindex.answers(i, format('ARRAY(%s)', every), terms);
    END IF;
    RETURN format(
        $query$WITH hashindex_within AS MATERIALIZED (%1$s LIMIT %2$s)
    %3$s$query$,
        hashindex.near_codes(i, 'scan', terms), pool,
        hashindex.answers(
            i, format(
                'CASE WHEN %s IS NOT NULL AND (SELECT count(*) FROM hashindex_within) >= %s '
                'THEN ARRAY(%s) ELSE ARRAY(%s) END',
                terms ->> 'threshold', pool,
                hashindex.candidate_ids('TABLE hashindex_within', 'scan', terms, weighted), every
            ),
            terms
        )
    );
END
$$;

COMMENT ON FUNCTION hashindex.scan_query(hashindex.index, jsonb, boolean) IS
    'text of the query that searches all codes of an index';
