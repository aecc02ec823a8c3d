-- Lets every shard read its part of the lists of the landmarks nearest to the query, and merges the nearest codes.
CREATE OR REPLACE FUNCTION {candidates}(
    query {ext}.vector, n integer DEFAULT NULL, probes integer DEFAULT NULL, filter text DEFAULT NULL,
    query_code bit varying DEFAULT NULL
)
RETURNS TABLE (id {key_type})
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 200
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = auto
AS $body$
#variable_conflict use_column
DECLARE
    hashindex_query {ext}.vector := CASE WHEN {ext}.vector_dims($1) = {dimension} THEN $1::{ext}.vector({dimension}) ELSE hashindex._refuse_vector($1, {dimension}) END;
    hashindex_n integer := CASE WHEN coalesce($2, {n}) > 0 THEN coalesce($2, {n}) ELSE hashindex._refuse('n', $2, '1 or more') END;
    hashindex_probes integer := CASE WHEN coalesce($3, {probes}) BETWEEN 1 AND 1000 THEN coalesce($3, {probes}) ELSE hashindex._refuse('probes', $3, '1 to 1000') END;
BEGIN
    IF {codes_are_hidden} THEN
        RETURN QUERY EXECUTE format({exact}, coalesce($4, 'true')) USING hashindex_query, hashindex_n;
        RETURN;
    END IF;
    -- Before the model is read: a caller without rights on codes has none on models.
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
        -- If the lists hold too few codes, read more lists, and finally all codes.
        WHILE hashindex_probes <= 1000 LOOP
            IF hashindex_probes <= {graph_probes} THEN
                -- Not a SET clause: restoring it from a dump would take a superuser while pgvector is not loaded.
                hashindex_set := set_config('hnsw.ef_search', greatest(64, hashindex_probes)::text, true);
                hashindex_lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l ORDER BY l.centre {landmark_operator} hashindex_point LIMIT hashindex_probes
                );
                hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
            ELSE
                -- Comparing all landmarks is faster than searching the graph for so many. "+ 0" keeps the planner from the graph.
                hashindex_lists := ARRAY(
                    SELECT l.landmark FROM {landmarks} l ORDER BY (l.centre {landmark_operator} hashindex_point) + 0 LIMIT hashindex_probes
                );
            END IF;
            IF $4 IS NULL THEN
                hashindex_ids := ARRAY(
                    SELECT c.id FROM {codes} c WHERE c.landmark = ANY (hashindex_lists) ORDER BY {distance} LIMIT hashindex_n
                );
            ELSE
                EXECUTE format('SELECT ARRAY(' || {filtered} || ')', 'c.landmark = ANY ($8)', $4) INTO hashindex_ids
                USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_u6, hashindex_n, hashindex_lists;
            END IF;
            IF cardinality(hashindex_ids) = hashindex_n THEN
                RETURN QUERY SELECT unnest(hashindex_ids);
                RETURN;
            END IF;
            hashindex_probes := 8 * hashindex_probes;
        END LOOP;
        RETURN QUERY EXECUTE format({filtered}, 'true', coalesce($4, 'true'))
        USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_u6, hashindex_n;
    END;
END
$body$
