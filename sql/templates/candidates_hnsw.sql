-- Searches pgvector's HNSW over the codes.
CREATE OR REPLACE FUNCTION {candidates}(
    query anycompatible, n integer DEFAULT NULL, probes integer DEFAULT NULL, filter text DEFAULT NULL,
    query_code bit varying DEFAULT NULL, checked boolean DEFAULT false
)
RETURNS TABLE (id {key_type})
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 200
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_indexscan = on
AS $body$
#variable_conflict use_column
DECLARE
    hashindex_query {ext}.vector := CASE WHEN {ext}.vector_dims($1::{ext}.vector) = {dimension} THEN $1::{ext}.vector({dimension}) ELSE hashindex._refuse_vector($1::{ext}.vector, {dimension}) END;
    hashindex_n integer := CASE WHEN coalesce($2, {n}) > 0 THEN coalesce($2, {n}) ELSE hashindex._refuse('n', $2, '1 or more') END;
BEGIN
    IF NOT checked AND ({codes_are_hidden}) THEN
        RETURN QUERY SELECT e.id::{key_type} FROM hashindex._exact_search({exact}, hashindex_query, hashindex_n, $4) e;
        RETURN;
    END IF;
    -- Before the model is read: a caller without rights on codes has none on models.
    DECLARE
        hashindex_projection {ext}.vector := {projection};
        hashindex_code bit({n_bits}) := {code};
        hashindex_codes bit varying[] := {query_codes};
        hashindex_u1 "bit" := hashindex_codes[1];
        hashindex_u2 "bit" := hashindex_codes[2];
        hashindex_u3 "bit" := hashindex_codes[3];
        hashindex_u4 "bit" := hashindex_codes[4];
        hashindex_u5 "bit" := hashindex_codes[5];
        hashindex_pool bigint := {pool};
        hashindex_effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
        hashindex_scan text := coalesce(current_setting('hnsw.iterative_scan', true), 'off');
        hashindex_set text;
        hashindex_ids {key_type}[];
    BEGIN
        IF $4 IS NOT NULL THEN
            RETURN QUERY EXECUTE format({filtered}, 'true', $4)
            USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_n;
            RETURN;
        END IF;
        -- Not a SET clause: restoring it from a dump would take a superuser while pgvector is not loaded.
        hashindex_set := set_config('hnsw.ef_search', least(1000, hashindex_pool)::text, true);
        -- pgvector allows at most 1000; the iterative scan finds more.
        hashindex_set := set_config('hnsw.iterative_scan', CASE WHEN hashindex_pool > 1000 THEN 'relaxed_order' ELSE 'off' END, true);
        hashindex_ids := ARRAY(
            SELECT c.id FROM (
                SELECT c.id, c.code FROM {codes} c ORDER BY c.code OPERATOR({ext}.<~>) hashindex_code LIMIT hashindex_pool
            ) c ORDER BY {distance} LIMIT hashindex_n
        );
        hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
        hashindex_set := set_config('hnsw.iterative_scan', hashindex_scan, true);
        IF cardinality(hashindex_ids) < hashindex_n THEN
            -- Some codes cannot be reached through the graph, so compare all if too few were found.
            hashindex_ids := ARRAY(SELECT c.id FROM {kept} c ORDER BY {distance} LIMIT hashindex_n);
        END IF;
        RETURN QUERY SELECT unnest(hashindex_ids);
    EXCEPTION WHEN undefined_table THEN
        -- A build may have dropped these codes since this statement began. The function is another one then.
        IF {codes_are_there} THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT c.id FROM {candidates}($1, $2, $3, $4, $5) c;
    END;
END
$body$
