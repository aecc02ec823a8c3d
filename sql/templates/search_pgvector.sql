-- Nearest rows by a set that pgvector's index keeps: candidates in the order of the set, then by exact distance. Never short in silence: where
-- the index gives fewer candidates than wanted, its scan goes on (an iterative scan), and where fewer than k rows are left, all are compared.
-- A generic plan does not know its LIMIT: without sequential scans and sorts it takes the index all the same, under a filter that has an index too. Citus plans no parameters.
-- by_code is for lists alone: with the same arguments for every set a swap replaces the function, and views of it stay.
CREATE OR REPLACE FUNCTION {search}(
    query anycompatible, k integer DEFAULT 10, candidates integer DEFAULT NULL, effort integer DEFAULT NULL, filter text DEFAULT NULL,
    where_equals jsonb DEFAULT NULL,{if tenant} tenant {tenant_type} DEFAULT NULL, all_tenants boolean DEFAULT false,{end tenant}
    caller_path text DEFAULT current_setting('search_path'), by_code boolean DEFAULT false
)
RETURNS TABLE ({answer}, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = {if sharded}force_custom_plan{else sharded}force_generic_plan{end sharded}
{if sharded}
{else sharded}
SET enable_seqscan = off
SET enable_sort = off
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
    -- Rows that an iterative scan visits, which is the second step.
    hashindex_tuples double precision := 8.0 * hashindex_n;
    hashindex_step integer := CASE WHEN hashindex_n > 1000 THEN 2 ELSE 1 END;
    hashindex_filter text := $5;
    hashindex_own_path text := current_setting('search_path');
    -- where_equals holds no SQL of the caller's.
    hashindex_path text := CASE WHEN $5 IS NULL THEN hashindex_own_path ELSE caller_path END;
    hashindex_matching double precision;
    hashindex_rows double precision;
    hashindex_count bigint := 0;
    hashindex_found integer := 0;
    hashindex_exactly boolean;
    hashindex_done text;
    -- Settings of the caller's, which are put back.
{if sharded}
    hashindex_before jsonb;
    hashindex_settings jsonb;
{else sharded}
    hashindex_ef_search text := coalesce(nullif(current_setting('hnsw.ef_search', true), ''), '40');
    hashindex_probes text := coalesce(nullif(current_setting('ivfflat.probes', true), ''), '1');
    hashindex_hnsw_scan text := coalesce(nullif(current_setting('hnsw.iterative_scan', true), ''), 'off');
    hashindex_ivfflat_scan text := coalesce(nullif(current_setting('ivfflat.iterative_scan', true), ''), 'off');
    hashindex_most text := coalesce(nullif(current_setting('hnsw.max_scan_tuples', true), ''), '20000');
    hashindex_memory text := coalesce(nullif(current_setting('hnsw.scan_mem_multiplier', true), ''), '1');
{end sharded}
BEGIN
    -- Whatever names columns that may be gone. A block of its own: inside one with a handler a standby that is in conflict with recovery ends the
    -- session, not the statement.
    BEGIN
{if tenant}
        IF $7 IS NULL THEN
            PERFORM hashindex._require_tenant({index}, {table_literal}, {tenant_literal}, NULL, $8, $6);
        END IF;
{end tenant}
        IF $5 IS NOT NULL OR $6 <> '{}' OR {if tenant}$7 IS NOT NULL OR {end tenant}row_security_active({table_literal}) THEN
            IF $6 <> '{}'{if tenant} OR $7 IS NOT NULL{end tenant} THEN
{if tenant}
                hashindex_filter := concat_ws(
                    ' AND ', nullif(hashindex._filter_of(hashindex.find_index({index}), $5, CASE WHEN $7 IS NULL THEN $6 ELSE coalesce($6, '{}') END, caller_path), ''),
                    {{{table}.{tenant} OPERATOR(pg_catalog.=) }} || quote_literal($7) || {{::{tenant_type}}}
                );
{else tenant}
                hashindex_filter := hashindex._filter_of(hashindex.find_index({index}), $5, $6, caller_path);
{end tenant}
            END IF;
            -- Without brackets, since a filter is one condition, and not a part of a statement.
            hashindex_matching := (hashindex._estimate({{SELECT FROM {table} WHERE }} || coalesce(hashindex_filter, 'true'), hashindex_path)).matching;
            hashindex_rows := greatest(hashindex._estimated_rows({table_literal}::regclass), hashindex_matching, 1);
            -- Comparing those that match takes as long as the scan of an index at sqrt(400 N) of N rows, 5,000 of 60,000 (measured).
            hashindex_exactly := hashindex_matching <= {few};
            hashindex_step := 2;
            hashindex_tuples := 4.0 * hashindex_n * hashindex_rows / greatest(hashindex_matching, 1);
        END IF;
{if sharded}
{else sharded}
        PERFORM {each table.key}, {table}.{column}, {ranking} hashindex_ranked FROM {table} WHERE false;
{if tenant}
        IF $7 IS NOT NULL THEN
            PERFORM {table}.{tenant} FROM {table} WHERE false;
        END IF;
{end tenant}
    EXCEPTION WHEN undefined_table OR undefined_column THEN
        PERFORM hashindex._refuse_renamed(hashindex.find_index({index}));
        RAISE;
{end sharded}
    END;
    IF hashindex_exactly THEN
        RETURN QUERY SELECT {key_of_text}, a.distance FROM hashindex._exact_search({exact}, hashindex_query, hashindex_k, hashindex_filter, hashindex_path) a;
        RETURN;
    END IF;
    LOOP
        -- Whichever of pgvector's indexes the planner takes.
{if sharded}
        hashindex_settings := hashindex._put_settings(hashindex._scan_settings(hashindex_effort, hashindex_tuples, hashindex_step = 2));
        hashindex_before := coalesce(hashindex_before, hashindex_settings);
{else sharded}
        hashindex_done := set_config('hnsw.ef_search', least(hashindex_effort, 1000)::text, true);
        hashindex_done := set_config('ivfflat.probes', least(hashindex_effort, 32768)::text, true);
        IF hashindex_step = 2 THEN
            hashindex_done := set_config('hnsw.iterative_scan', 'relaxed_order', true);
            hashindex_done := set_config('ivfflat.iterative_scan', 'relaxed_order', true);
            hashindex_done := set_config('hnsw.max_scan_tuples', least(greatest(20000, hashindex_tuples), 2147483647)::bigint::text, true);
            hashindex_done := set_config('hnsw.scan_mem_multiplier', '8', true);
        END IF;
{end sharded}
        IF hashindex_filter IS NULL THEN
            FOR {each shown}, distance, hashindex_count IN
                SELECT {each r.id}, r.distance, count(*) OVER ()
                FROM (
                    SELECT {each table.key as id}, {table}.{column} {operator} hashindex_point AS distance
                    FROM {table} WHERE {table}.{column} IS NOT NULL
                    ORDER BY {ranking} hashindex_ranked LIMIT hashindex_n
                ) r
                WHERE {is_comparable}
                ORDER BY r.distance, {each r.id} LIMIT hashindex_k
            LOOP
                EXIT WHEN hashindex_count < CASE hashindex_step WHEN 1 THEN hashindex_n ELSE hashindex_k END;
                hashindex_found := hashindex_found + 1;
                RETURN NEXT;
            END LOOP;
        ELSE
            hashindex_done := set_config('search_path', hashindex_path, true);
            FOR {each shown}, distance, hashindex_count IN EXECUTE {{
                SELECT {each r.id}, r.distance, pg_catalog.count(*) OVER ()
                FROM (
                    SELECT {each table.key as id}, {table}.{column} {operator} $1 AS distance
                    FROM {table} WHERE {table}.{column} IS NOT NULL AND (}} OPERATOR(pg_catalog.||) hashindex_filter OPERATOR(pg_catalog.||) {{
                    ) ORDER BY {ranking} $2 LIMIT $3
                ) r
                WHERE {is_comparable_to_parameter}
                ORDER BY r.distance, {each r.id} LIMIT $4
            }} USING hashindex_point, hashindex_ranked, hashindex_n, hashindex_k
            LOOP
                EXIT WHEN hashindex_count OPERATOR(pg_catalog.<) hashindex_k;
                hashindex_found := hashindex_found OPERATOR(pg_catalog.+) 1;
                RETURN NEXT;
            END LOOP;
            hashindex_done := pg_catalog.set_config('search_path', hashindex_own_path, true);
        END IF;
        EXIT WHEN hashindex_found > 0 OR hashindex_step = 2;
        hashindex_step := 2;
    END LOOP;
{if sharded}
    PERFORM hashindex._put_settings(hashindex_before);
{else sharded}
    hashindex_done := set_config('hnsw.ef_search', hashindex_ef_search, true);
    hashindex_done := set_config('ivfflat.probes', hashindex_probes, true);
    IF hashindex_step = 2 THEN
        hashindex_done := set_config('hnsw.iterative_scan', hashindex_hnsw_scan, true);
        hashindex_done := set_config('ivfflat.iterative_scan', hashindex_ivfflat_scan, true);
        hashindex_done := set_config('hnsw.max_scan_tuples', hashindex_most, true);
        hashindex_done := set_config('hnsw.scan_mem_multiplier', hashindex_memory, true);
    END IF;
{end sharded}
    IF hashindex_found = 0 THEN
        RETURN QUERY SELECT {key_of_text}, a.distance FROM hashindex._exact_search({exact}, hashindex_query, hashindex_k, hashindex_filter, hashindex_path) a;
    END IF;
END
$body$
