-- Reads the lists of the landmarks nearest to the query. A list is the rows of the code table that have this landmark. Without index
-- scans they are read by a bitmap scan, for which PostgreSQL asks the disk for many pages at a time.
CREATE OR REPLACE FUNCTION {candidates}(
    query anycompatible, n integer DEFAULT NULL, probes integer DEFAULT NULL, filter text DEFAULT NULL,
    query_code bit varying DEFAULT NULL, checked boolean DEFAULT false
)
RETURNS TABLE (id {key_type})
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 200
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = {plans}
SET enable_seqscan = off
SET enable_indexscan = on
AS $body$
#variable_conflict use_column
DECLARE
    hashindex_query {ext}.vector := CASE WHEN {ext}.vector_dims($1::{ext}.vector) = {dimension} THEN $1::{ext}.vector({dimension}) ELSE hashindex._refuse_vector($1::{ext}.vector, {dimension}) END;
    hashindex_n integer := CASE WHEN coalesce($2, {n}) > 0 THEN coalesce($2, {n}) ELSE hashindex._refuse('n', $2, '1 or more') END;
    n_probes integer := CASE WHEN coalesce($3, {probes}) BETWEEN 1 AND 1000 THEN coalesce($3, {probes}) ELSE hashindex._refuse('probes', $3, '1 to 1000') END;
BEGIN
    IF NOT checked AND ({codes_are_hidden}) THEN
        RETURN QUERY SELECT e.id::{key_type} FROM hashindex._exact_search({exact}, hashindex_query, hashindex_n, $4) e;
        RETURN;
    END IF;
    -- Only now read the model: who has no rights on codes has none on it.
    DECLARE
        hashindex_projection {ext}.vector := {projection};
        codes bit varying[] := {query_codes};
        hashindex_u1 "bit" := codes[1];
        hashindex_u2 "bit" := codes[2];
        hashindex_u3 "bit" := codes[3];
        hashindex_u4 "bit" := codes[4];
        hashindex_u5 "bit" := codes[5];
        point {ext}.halfvec := {point};
        effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
        done text;
        lists integer[];
        ids {key_type}[];
    BEGIN
        -- Where lists hold too few codes, read more, and finally all.
        WHILE n_probes <= 1000 LOOP
            IF n_probes <= {graph_probes} THEN
                -- Not a SET clause: only superusers may restore one before pgvector is loaded.
                done := set_config('hnsw.ef_search', greatest(n_probes, least(64, 16 + 2 * n_probes))::text, true);
                lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l ORDER BY l.centre OPERATOR({ext}.<->) point LIMIT n_probes
                );
                done := set_config('hnsw.ef_search', effort, true);
            ELSE
                -- For so many, comparing all is faster.
                lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l ORDER BY (l.centre OPERATOR({ext}.<->) point) + 0 LIMIT n_probes
                );
            END IF;
            done := set_config('enable_indexscan', 'off', true);
            IF $4 IS NULL THEN
                ids := ARRAY(
                    SELECT c.id FROM {codes} c WHERE c.landmark = ANY (lists) ORDER BY {distance} LIMIT hashindex_n
                );
            ELSE
                -- Without the subquery, the planner would look up statistics.
                EXECUTE format('SELECT ARRAY(' || {filtered} || ')', 'c.landmark = ANY (ARRAY(SELECT unnest($7)))', $4) INTO ids
                USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_n, lists;
            END IF;
            IF cardinality(ids) = hashindex_n THEN
                RETURN QUERY SELECT unnest(ids);
                RETURN;
            END IF;
            n_probes := 8 * n_probes;
            done := set_config('enable_indexscan', 'on', true);
        END LOOP;
        done := set_config('enable_seqscan', 'on', true);
        RETURN QUERY EXECUTE format({filtered}, 'true', coalesce($4, 'true'))
        USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_n;
    EXCEPTION WHEN undefined_table THEN
        -- A build may have dropped these codes since this statement began. The function is another one then.
        IF {codes_are_there} THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT c.id FROM {candidates}($1, $2, $3, $4, $5) c;
    END;
END
$body$
