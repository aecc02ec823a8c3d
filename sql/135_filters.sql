-- Searches of the rows that a condition holds for.

-- Of candidates, in their order, the first that are rows which a condition holds for.
CREATE OR REPLACE FUNCTION hashindex.matching(
    i hashindex.index, candidates text, condition text, n text
)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
BEGIN
    -- OFFSET: looked up one after the other, until there are enough.
    RETURN format(
        $query$SELECT hashindex_candidate.id FROM (%1$s) hashindex_candidate
    CROSS JOIN LATERAL (
        SELECT FROM %2$s
        WHERE %2$s.%3$I = hashindex_candidate.id AND %2$s.%4$I IS NOT NULL AND (%5$s) OFFSET 0
    ) hashindex_row
    ORDER BY hashindex_candidate.far, hashindex_candidate.id
    LIMIT %6$s$query$,
        candidates, format('%I.%I', i.schema_name, i.table_name), i.id_column, i.column_name, condition, n
    );
END
$$;

COMMENT ON FUNCTION hashindex.matching(hashindex.index, text, text, text) IS
    'text of the query for the first of the candidates that a condition holds for';

-- Rows that a condition holds for, which goes in before candidates are counted. Where few rows match
-- by an index of the table's (share is NULL), all of them are compared exactly. Elsewhere the nearest
-- codes are looked up in the table one after the other until enough match: three times as many as
-- should do; of lists, all entries then; and if that is not enough, all codes are joined with the
-- table.
CREATE OR REPLACE FUNCTION hashindex.filtered_query(
    i hashindex.index, terms jsonb, weighted boolean, condition text, share double precision
)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    base text := format('%I.%I', i.schema_name, i.table_name);
    kept text := terms ->> 'kept';
    part text := format('%s::double precision', greatest(share, 0.001));
    -- Not all wanted are among those that the condition keeps of the nearest.
    tried text := format('ceil(3 * %s / %s)', kept, part);
    listed jsonb := terms || '{"lists": "(SELECT p.lists FROM hashindex_probed p)::integer[]", "order": "none"}';
    every text;
BEGIN
    IF share IS NULL THEN
        -- "+ 0" hides the order from an HNSW or IVFFlat index, whose answers are approximate.
        RETURN format(
            $query$SELECT %1$s.%2$I AS id, %1$s.%3$I %4$s %5$s AS distance
    FROM %1$s
    WHERE %1$s.%3$I IS NOT NULL AND (%6$s)
    ORDER BY (%1$s.%3$I %4$s %5$s) + 0, id
    LIMIT %7$s$query$,
            base, i.id_column, i.column_name, hashindex.distance_operator(i.metric),
            terms ->> 'query', condition, terms ->> 'k'
        );
    ELSIF hashindex.is_distributed(i) THEN
        -- Rows are not looked up one by one from here.
        RETURN hashindex.distributed_query(i, terms, weighted, condition);
    END IF;
    every := hashindex.candidate_ids(
        format(
            '%s LIMIT %s', hashindex.near_codes(i, 'scan', terms, condition),
            hashindex.pool(kept, 'scan', weighted)
        ),
        'scan', terms, weighted
    );
    IF i.layout = 'column' THEN
        RETURN hashindex.answers(i, format('ARRAY(%s)', every), terms);
    END IF;
    IF i.access <> 'landmarks' THEN
        RETURN format(
            $query$WITH hashindex_matching AS MATERIALIZED (%s)
    %s$query$,
            hashindex.matching(
                i, hashindex.candidates(
                    format(
                        '%s LIMIT ceil(3 * (%s) / %s)', hashindex.near_codes(i, 'scan', terms),
                        hashindex.pool(kept, 'filter', weighted), part
                    ),
                    'scan', terms || jsonb_build_object('kept', tried), weighted
                ),
                condition, kept
            ),
            hashindex.answers(
                i, format(
                    'CASE WHEN (SELECT count(*) FROM hashindex_matching) >= %s '
                    'THEN ARRAY(TABLE hashindex_matching) ELSE ARRAY(%s) END', kept, every
                ),
                terms
            )
        );
    END IF;
    RETURN format(
        $query$WITH hashindex_probed AS MATERIALIZED (SELECT %1$s AS lists),
    hashindex_matching AS MATERIALIZED (%2$s),
    hashindex_listed AS MATERIALIZED (%3$s)
    %4$s$query$,
        hashindex.exact_probes(
            i, terms ->> 'query',
            format('ceil(%s / %s)', coalesce(terms ->> 'probes', i.probes::text), part)
        ),
        hashindex.matching(
            i, hashindex.candidates(
                hashindex.near_codes(i, 'landmarks', listed || jsonb_build_object(
                    'threshold', format('(%s)', hashindex.list_threshold(
                        i, listed || jsonb_build_object('kept', format('(3 * %s / %s)', kept, part))
                    ))
                )),
                'landmarks', terms || jsonb_build_object('kept', tried), weighted
            ),
            condition, kept
        ),
        hashindex.matching(
            i, hashindex.candidates(
                hashindex.near_codes(i, 'landmarks', listed), 'landmarks', terms || '{"kept": "ALL"}', weighted
            ),
            condition, kept
        ),
        hashindex.answers(
            i, format(
                'CASE WHEN (SELECT count(*) FROM hashindex_matching) >= %1$s THEN ARRAY(TABLE hashindex_matching) '
                'WHEN (SELECT count(*) FROM hashindex_listed) >= %1$s THEN ARRAY(TABLE hashindex_listed) '
                'ELSE ARRAY(%2$s) END', kept, every
            ),
            terms
        )
    );
END
$$;

COMMENT ON FUNCTION hashindex.filtered_query(hashindex.index, jsonb, boolean, text, double precision) IS
    'text of the query that searches the rows which a condition holds for; share is the part of the rows that it keeps';

-- NULL where comparing all rows that match costs less than looking codes up until enough match. In
-- milliseconds, with a microsecond for a unit of the planner's and for each exact distance.
CREATE OR REPLACE FUNCTION hashindex.kept_share(
    matching double precision, cost double precision, table_rows double precision,
    candidates integer
)
RETURNS double precision
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    share double precision := least(1, matching / greatest(table_rows, 1));
    wanted double precision := greatest(2 * candidates::bigint, 400);
BEGIN
    IF 0.001 * (cost + matching)
        <= 1 + 0.0015 * least(greatest(table_rows, 1), wanted / greatest(share, 1e-9))
    THEN
        RETURN NULL;
    END IF;
    RETURN share;
END
$$;

COMMENT ON FUNCTION hashindex.kept_share(double precision, double precision, double precision, integer) IS
    'part of a table that a condition keeps, from the planner''s estimates; NULL where it is best to compare all of it exactly';

-- The text depends on the query, whose code and masks stand in it; parameters are the query vector
-- and what the condition has.
CREATE OR REPLACE FUNCTION hashindex.filtered_search(
    index_name text,
    query vector,
    k integer,
    condition text,
    matching double precision,
    cost double precision,
    query_term text DEFAULT '$1',
    candidates integer DEFAULT NULL,
    probes integer DEFAULT NULL,
    ranking text DEFAULT NULL,
    query_code bit varying DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql STABLE PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    i hashindex.index := hashindex.find_index(index_name);
    used hashindex.model := m FROM hashindex.model m WHERE m.id = i.model_id;
    base regclass := format('%I.%I', i.schema_name, i.table_name)::regclass;
    projection vector;
    code bit varying;
    planes bit varying[];
    kept integer;
BEGIN
    i.probes := coalesce(filtered_search.probes, i.probes);
    i.ranking := coalesce(filtered_search.ranking, i.ranking);
    kept := greatest(coalesce(filtered_search.candidates, i.candidates), k);
    PERFORM hashindex.check_search_arguments(
        query, k, candidates, i.probes, i.ranking, hashindex.rankings(used)
    );
    IF used.network IS NULL THEN
        projection := hashindex.project_with(used.layers, query);
        code := binary_quantize(projection);
    ELSE
        code := hashindex.checked_query_code(query_code, used.n_bits);
    END IF;
    planes := CASE i.ranking
        WHEN 'asymmetric' THEN hashindex.query_planes(projection)
        WHEN 'weighted' THEN hashindex.weight_planes(used.bit_weights)
    END;
    RETURN hashindex.filtered_query(
        i,
        jsonb_build_object(
            'query', query_term, 'k', k, 'kept', kept, 'code', format('B%L', code),
            'masks', (SELECT jsonb_agg(format('B%L', p)) FROM unnest(planes) p),
            'masked', (SELECT jsonb_agg(format('B%L', p & code)) FROM unnest(planes) p)
        ),
        i.ranking <> 'hamming', condition,
        hashindex.kept_share(
            matching, cost,
            (
                -- Of a table with partitions nobody may ever have counted the rows.
                SELECT coalesce(sum(greatest(c.reltuples, 0)) FILTER (WHERE t.isleaf), max(c.reltuples))
                FROM pg_class c LEFT JOIN pg_partition_tree(base) t ON t.relid = c.oid
                WHERE c.oid = base OR t.isleaf
            ),
            kept
        )
    );
END
$$;

COMMENT ON FUNCTION hashindex.filtered_search(text, vector, integer, text, double precision, double precision, text, integer, integer, text, bit varying) IS
    'text of the query that searches an index with a condition on its table''s columns, from the planner''s estimates of that condition';

-- EXPLAIN is allowed in a volatile function alone, though it changes nothing.
CREATE OR REPLACE FUNCTION hashindex.estimate(
    statement text, caller_path text DEFAULT current_setting('search_path'),
    OUT matching double precision, OUT cost double precision
)
LANGUAGE plpgsql VOLATILE STRICT PARALLEL UNSAFE
SET search_path FROM CURRENT
AS $$
DECLARE
    plans refcursor;
    plan json;
BEGIN
    PERFORM set_config('search_path', caller_path, true);
    -- By a cursor, which takes one statement alone.
    OPEN plans FOR EXECUTE 'EXPLAIN (FORMAT JSON) ' || statement;
    FETCH plans INTO plan;
    CLOSE plans;
    matching := plan -> 0 -> 'Plan' ->> 'Plan Rows';
    cost := plan -> 0 -> 'Plan' ->> 'Total Cost';
END
$$;

COMMENT ON FUNCTION hashindex.estimate(text, text) IS
    'how many rows the planner expects of a query, and at what cost';
