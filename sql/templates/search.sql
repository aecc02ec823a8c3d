-- Orders the candidates by exact distance. Locks the table first, then codes, in the order that all other functions use. Without
-- index scans rows are read by a bitmap scan, for which PostgreSQL asks the disk for many pages at a time. The functions that it calls
-- allow themselves index scans again.
CREATE OR REPLACE FUNCTION {search}(
    query anycompatible, k integer DEFAULT 10, candidates integer DEFAULT NULL, probes integer DEFAULT NULL,
    query_code bit varying DEFAULT NULL, filter text DEFAULT NULL, where_equals jsonb DEFAULT NULL,
    caller_path text DEFAULT current_setting('search_path')
)
RETURNS TABLE ({answer}, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_indexscan = {key_scan}
AS $body$
#variable_conflict use_column
DECLARE
    hashindex_trusted boolean := {require_trust};
    -- The casts copy a vector that a subquery took from a table out of TOAST, once instead of for every row that it is compared with.
    hashindex_query {ext}.vector := {checked_query};
    hashindex_point {vector_type} := hashindex_query;
    hashindex_k integer := CASE WHEN $2 > 0 THEN $2 ELSE hashindex._refuse('k', $2, '1 or more') END;
    hashindex_n integer := CASE WHEN coalesce($3, {n}) > 0 THEN greatest(coalesce($3, hashindex._candidates_for($2, {n})), $2) ELSE hashindex._refuse('candidates', $3, '1 or more') END;
    hashindex_ids {key_type}[];
    hashindex_distances double precision[];
BEGIN
    IF $6 IS NOT NULL OR $7 <> '{}' THEN
        RETURN QUERY SELECT {f_ids}, f.distance
        FROM hashindex._filtered_search(hashindex.find_index({index}), hashindex_query, $2, $3, $4, $5, $6, $7, $8) f;
        RETURN;
    ELSIF NOT ({codes_are_hidden}) THEN
        SELECT array_agg(r.id), array_agg(r.distance) INTO hashindex_ids, hashindex_distances
        FROM (
            SELECT {table_key} AS id, {table}.{column} {operator} hashindex_point AS distance
            FROM {table}
            WHERE {table_among}(ARRAY(
                SELECT {candidate_key} FROM {candidates}(hashindex_query, hashindex_n, $4, NULL, $5, true) c
            )){among_end} AND {table}.{column} IS NOT NULL
            ORDER BY distance, id
            LIMIT hashindex_k
        ) r
        WHERE {is_comparable};
        IF cardinality(hashindex_ids) = hashindex_k THEN
            RETURN QUERY {found};
            RETURN;
        END IF;
    END IF;
    -- Also if codes led to fewer than k rows: rows may lack a code, and rows of codes may have gone with a partition.
    RETURN QUERY SELECT {e_ids}, e.distance FROM hashindex._exact_search({exact}, hashindex_query, hashindex_k) e;
END
$body$
