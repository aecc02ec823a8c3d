-- Reads the lists of the landmarks nearest to the query: the rows of the code table that have them.
CREATE OR REPLACE FUNCTION {candidates}(
    query {ext}.vector, n integer DEFAULT NULL, probes integer DEFAULT NULL, filter text DEFAULT NULL,
    query_code bit varying DEFAULT NULL
)
RETURNS TABLE (id {key_type})
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 200
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
AS $body$
#variable_conflict use_column
DECLARE
    hashindex_query {ext}.vector := CASE WHEN {ext}.vector_dims($1) = {dimension} THEN $1 ELSE hashindex._refuse_vector($1, {dimension}) END;
    hashindex_n integer := CASE WHEN coalesce($2, {n}) > 0 THEN coalesce($2, {n}) ELSE hashindex._refuse('n', $2, '1 or more') END;
    hashindex_probes integer := CASE WHEN coalesce($3, {probes}) BETWEEN 1 AND 1000 THEN coalesce($3, {probes}) ELSE hashindex._refuse('probes', $3, '1 to 1000') END;
BEGIN
    IF {codes_are_hidden} THEN
        RETURN QUERY EXECUTE format({exact}, coalesce($4, 'true')) USING hashindex_query, hashindex_n;
        RETURN;
    END IF;
    -- Who may not read codes may not read models either.
    DECLARE
        hashindex_projection {ext}.vector := {projection};
        hashindex_codes bit varying[] := {query_codes};
        hashindex_u1 "bit" := hashindex_codes[1];
        hashindex_u2 "bit" := hashindex_codes[2];
        hashindex_u3 "bit" := hashindex_codes[3];
        hashindex_u4 "bit" := hashindex_codes[4];
        hashindex_u5 "bit" := hashindex_codes[5];
        hashindex_u6 "bit" := hashindex_codes[6];
        hashindex_point {ext}.halfvec := {point};
        hashindex_effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
        hashindex_set text;
        hashindex_lists integer[];
        hashindex_ids {key_type}[];
    BEGIN
        -- Where lists hold too few codes, more lists are read, and all codes in the end.
        WHILE hashindex_probes <= 1000 LOOP
            IF hashindex_probes <= {graph_probes} THEN
                -- Not by SET: restoring a dump would need a superuser for it, while pgvector is not loaded.
                hashindex_set := set_config('hnsw.ef_search', greatest(64, hashindex_probes)::text, true);
                hashindex_lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l ORDER BY l.centre {landmark_operator} hashindex_point LIMIT hashindex_probes
                );
                hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
            ELSE
                -- Comparing all landmarks takes less than that much of the graph. "+ 0" hides the order from it.
                hashindex_lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l ORDER BY (l.centre {landmark_operator} hashindex_point) + 0 LIMIT hashindex_probes
                );
            END IF;
            IF $4 IS NULL THEN
                hashindex_ids := ARRAY(
                    SELECT c.id FROM {codes} c WHERE c.landmark = ANY (hashindex_lists) ORDER BY {distance} LIMIT hashindex_n
                );
            ELSE
                -- The planner would look each list of $8 itself up in its statistics.
                EXECUTE format('SELECT ARRAY(' || {filtered} || ')', 'c.landmark = ANY (ARRAY(SELECT unnest($8)))', $4) INTO hashindex_ids
                USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_u6, hashindex_n, hashindex_lists;
            END IF;
            IF cardinality(hashindex_ids) = hashindex_n THEN
                RETURN QUERY SELECT unnest(hashindex_ids);
                RETURN;
            END IF;
            hashindex_probes := 8 * hashindex_probes;
        END LOOP;
        hashindex_set := set_config('enable_seqscan', 'on', true);
        RETURN QUERY EXECUTE format({filtered}, 'true', coalesce($4, 'true'))
        USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_u6, hashindex_n;
    END;
END
$body$
