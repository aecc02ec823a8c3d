-- Nearest rows by a set that pgvector's index keeps: candidates in the order of the set, then by exact distance. Never short in silence: where
-- the index gives fewer candidates than wanted, its scan goes on (an iterative scan), and where fewer than k rows are left, all are compared.
-- A generic plan does not know its LIMIT: without sequential scans it takes the index all the same. Citus plans no parameters.
CREATE OR REPLACE FUNCTION {search}(
    query anycompatible, k integer DEFAULT 10, candidates integer DEFAULT NULL, effort integer DEFAULT NULL, filter text DEFAULT NULL,
    where_equals jsonb DEFAULT NULL,{if tenant} tenant {tenant_type} DEFAULT NULL, all_tenants boolean DEFAULT false,{end tenant}
    caller_path text DEFAULT current_setting('search_path')
)
RETURNS TABLE ({answer}, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = {if sharded}force_custom_plan{else sharded}force_generic_plan{end sharded}
{if sharded}
{else sharded}
SET enable_seqscan = off
{end sharded}
AS $body$
#variable_conflict use_column
DECLARE
    -- The casts copy a vector that a subquery took from a table out of TOAST, once.
    hashindex_query {ext}.vector := CASE WHEN {ext}.vector_dims($1::{ext}.vector) = {dimension} THEN $1::{ext}.vector({dimension})
        ELSE hashindex._refuse_vector($1::{ext}.vector, {dimension}) END;
    hashindex_point {vector_type} := hashindex_query;
    hashindex_ranked {ranked_type} := {ranked_query};
    hashindex_k integer := CASE WHEN $2 > 0 THEN $2 ELSE hashindex._refuse('k', $2, '1 or more') END;
    hashindex_n integer := CASE WHEN coalesce($3, {n}) > 0 THEN greatest(coalesce($3, hashindex._candidates_for($2, {n})), $2) ELSE hashindex._refuse('candidates', $3, '1 or more') END;
    hashindex_effort integer := CASE WHEN coalesce($4, 1) > 0 THEN coalesce($4, {effort}, hashindex_n) ELSE hashindex._refuse('effort', $4, '1 or more') END;
    -- Settings of the caller's, which are put back.
    ef_search text := coalesce(current_setting('hnsw.ef_search', true), '40');
    probes text := coalesce(current_setting('ivfflat.probes', true), '1');
    hnsw_scan text := coalesce(current_setting('hnsw.iterative_scan', true), 'off');
    ivfflat_scan text := coalesce(current_setting('ivfflat.iterative_scan', true), 'off');
    tuples text := coalesce(current_setting('hnsw.max_scan_tuples', true), '20000');
{if sharded}
    scans text := current_setting('enable_seqscan');
    -- How many of them were put on the nodes.
    hashindex_put integer := 3;
{else sharded}
    done text;
{end sharded}
    hashindex_count bigint := 0;
    hashindex_found integer := 0;
BEGIN
{if tenant}
    IF $7 IS NULL AND NOT $8 AND $6 -> {tenant_literal} IS NULL AND NOT row_security_active({table_literal})
        AND has_column_privilege({table_literal}, {tenant_literal}, 'SELECT') THEN
        PERFORM hashindex._refuse_all_tenants({index}, {tenant_literal});
    END IF;
{end tenant}
    IF $5 IS NOT NULL OR $6 <> '{}' OR {if tenant}$7 IS NOT NULL OR {end tenant}row_security_active({table_literal}) THEN
        RETURN QUERY SELECT {key_of_text}, a.distance FROM hashindex._search_filtered_set(
            hashindex.find_index({index}), hashindex_query, hashindex_k, hashindex_n, hashindex_effort, $5,
            {if tenant}CASE WHEN $7 IS NULL THEN $6 ELSE coalesce($6, '{}') || jsonb_build_object({tenant_literal}, $7) END, $9{else tenant}$6, $7{end tenant}
        ) a;
        RETURN;
    END IF;
    -- Whichever of pgvector's indexes the planner takes.
{if sharded}
    PERFORM hashindex._put_on_nodes(
        ARRAY['enable_seqscan', 'hnsw.ef_search', 'ivfflat.probes'],
        ARRAY['off', least(hashindex_effort, 1000)::text, least(hashindex_effort, 32768)::text]
    );
{else sharded}
    done := set_config('hnsw.ef_search', least(hashindex_effort, 1000)::text, true);
    done := set_config('ivfflat.probes', least(hashindex_effort, 32768)::text, true);
{end sharded}
    FOR hashindex_step IN CASE WHEN hashindex_n > 1000 THEN 2 ELSE 1 END..2 LOOP
        IF hashindex_step = 2 THEN
{if sharded}
            hashindex_put := 6;
            PERFORM hashindex._put_on_nodes(
                ARRAY['hnsw.iterative_scan', 'ivfflat.iterative_scan', 'hnsw.max_scan_tuples'],
                ARRAY['relaxed_order', 'relaxed_order', least(greatest(20000, 8 * hashindex_n::bigint), 2147483647)::text]
            );
{else sharded}
            done := set_config('hnsw.iterative_scan', 'relaxed_order', true);
            done := set_config('ivfflat.iterative_scan', 'relaxed_order', true);
            done := set_config('hnsw.max_scan_tuples', least(greatest(20000, 8 * hashindex_n::bigint), 2147483647)::text, true);
{end sharded}
        END IF;
        FOR {each shown}, distance, hashindex_count IN
            SELECT {each c.key}, c.distance, count(*) OVER ()
            FROM (
                SELECT {each table.key}, {table}.{column} {operator} hashindex_point AS distance
                FROM {table} WHERE {table}.{column} IS NOT NULL
                ORDER BY {ranking} LIMIT hashindex_n
            ) c
            WHERE {is_comparable}
            ORDER BY c.distance, {each c.key} LIMIT hashindex_k
        LOOP
            EXIT WHEN hashindex_count < CASE hashindex_step WHEN 1 THEN hashindex_n ELSE hashindex_k END;
            hashindex_found := hashindex_found + 1;
            RETURN NEXT;
        END LOOP;
        EXIT WHEN hashindex_found > 0;
    END LOOP;
{if sharded}
    PERFORM hashindex._put_on_nodes(
        (ARRAY['enable_seqscan', 'hnsw.ef_search', 'ivfflat.probes', 'hnsw.iterative_scan', 'ivfflat.iterative_scan', 'hnsw.max_scan_tuples'])[:hashindex_put],
        (ARRAY[scans, ef_search, probes, hnsw_scan, ivfflat_scan, tuples])[:hashindex_put]
    );
{else sharded}
    done := set_config('hnsw.ef_search', ef_search, true);
    done := set_config('ivfflat.probes', probes, true);
    done := set_config('hnsw.iterative_scan', hnsw_scan, true);
    done := set_config('ivfflat.iterative_scan', ivfflat_scan, true);
    done := set_config('hnsw.max_scan_tuples', tuples, true);
{end sharded}
    IF hashindex_found = 0 THEN
        RETURN QUERY SELECT {key_of_text}, a.distance FROM hashindex._exact_search({exact}, hashindex_query, hashindex_k) a;
    END IF;
END
$body$
