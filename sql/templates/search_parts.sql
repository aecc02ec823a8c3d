-- Orders the candidates by exact distance, in a table with partitions or shards, or within one tenant. Their keys are collected first, so that
-- only the parts that hold some are locked and read. With tenants, a search with a filter besides is like any with a filter, and so is one
-- of a role that sees the rows of its tenant alone.
CREATE OR REPLACE FUNCTION {search}(
    query anycompatible, k integer DEFAULT 10, candidates integer DEFAULT NULL, probes integer DEFAULT NULL,
    query_code bit varying DEFAULT NULL, filter text DEFAULT NULL, where_equals jsonb DEFAULT NULL,
    caller_path text DEFAULT current_setting('search_path'){tenant_argument}
)
RETURNS TABLE ({answer}, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = {table_plans}
SET enable_indexscan = {table_indexscan}
-- A plan for any tenant expects one of the usual size, and would read a whole table to find out that it has no row of this one.
SET enable_seqscan = {table_seqscan}
AS $body$
#variable_conflict use_column
DECLARE
    hashindex_trusted boolean := {require_trust};
    -- The casts copy a vector that a subquery took from a table out of TOAST, once instead of for every row that it is compared with.
    hashindex_query {ext}.vector := {checked_query};
    hashindex_point {vector_type} := hashindex_query;
    hashindex_k integer := CASE WHEN $2 > 0 THEN $2 ELSE hashindex._refuse('k', $2, '1 or more') END;
    hashindex_n integer := CASE WHEN coalesce($3, {n}) > 0 THEN greatest(coalesce($3, hashindex._candidates_for($2, {n})), $2) ELSE hashindex._refuse('candidates', $3, '1 or more') END;
    hashindex_locked boolean;
    hashindex_keys {key_type}[];{part_variables}
    r record;
    hashindex_found integer := 0;
    hashindex_ids {key_type}[];
    hashindex_distances double precision[];
BEGIN{require_tenant}
    IF {no_tenant}$6 IS NOT NULL OR $7 <> '{}' THEN
        RETURN QUERY SELECT {f_ids}, f.distance
        FROM hashindex._filtered_search(hashindex.find_index({index}), hashindex_query, $2, $3, $4, $5, $6, $7, $8{tenant_text}) f;
        RETURN;
    ELSIF NOT ({codes_are_hidden}) THEN{search_shards}
        -- Locks the table first, then codes, in the order that all other functions use.
        hashindex_locked := EXISTS (SELECT FROM {table} WHERE false);
        -- All rows of a very small tenant are compared: to rank their codes takes longer.
        hashindex_keys := {few_keys};
        IF coalesce(cardinality(hashindex_keys), 0) NOT BETWEEN 1 AND {few} THEN
            hashindex_keys := ARRAY(SELECT {candidate_key} FROM {candidates}(hashindex_query, hashindex_n, $4, NULL, $5, true{searched_tenant}) c);
        END IF;{part_values}
        -- A loop, since Citus would keep the rows of a subquery with a limit in a file.
        FOR r IN
            SELECT {table_key} AS id, {table}.{column} {operator} hashindex_point AS distance
            FROM {table}
            WHERE {of_tenant}{table_among}(hashindex_keys){among_end}{in_parts} AND {table}.{column} IS NOT NULL
            ORDER BY distance, id
            LIMIT hashindex_k
        LOOP
            CONTINUE WHEN NOT ({is_comparable});
            hashindex_found := hashindex_found + 1;
            hashindex_ids[hashindex_found] := r.id;
            hashindex_distances[hashindex_found] := r.distance;
        END LOOP;
        IF hashindex_found = hashindex_k THEN
            RETURN QUERY {found};
            RETURN;
        END IF;
    END IF;
    -- Also if codes led to fewer than k rows: rows may lack a code, and rows of codes may have gone with a partition.
{exact_rows}
END
$body$
