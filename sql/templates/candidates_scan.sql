-- Compares every code with the query.
CREATE OR REPLACE FUNCTION {candidates}(
    query anycompatible, n integer DEFAULT NULL, probes integer DEFAULT NULL, filter text DEFAULT NULL,
    query_code bit varying DEFAULT NULL, checked boolean DEFAULT false
)
RETURNS TABLE (id {key_type})
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 200
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = {plans}
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
        hashindex_codes bit varying[] := {query_codes};
        hashindex_u1 "bit" := hashindex_codes[1];
        hashindex_u2 "bit" := hashindex_codes[2];
        hashindex_u3 "bit" := hashindex_codes[3];
        hashindex_u4 "bit" := hashindex_codes[4];
        hashindex_u5 "bit" := hashindex_codes[5];
        hashindex_pool bigint := {pool};
        hashindex_ids {key_type}[];
    BEGIN
        IF $4 IS NULL THEN
            hashindex_ids := ARRAY(SELECT c.id FROM {kept} c ORDER BY {distance} LIMIT hashindex_n);
            RETURN QUERY SELECT unnest(hashindex_ids);
        ELSE
            RETURN QUERY EXECUTE format({filtered}, 'true', $4)
            USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_n;
        END IF;
    EXCEPTION WHEN undefined_table THEN
        -- A build may have dropped these codes since this statement began. The function is another one then.
        IF {codes_are_there} THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT c.id FROM {candidates}($1, $2, $3, $4, $5) c;
    END;
END
$body$
