-- Ranks codes; rank_scan.sql and rank_landmarks.sql are the two ways.
CREATE OR REPLACE FUNCTION {candidates}(
    query anycompatible, n integer DEFAULT NULL, probes integer DEFAULT NULL, filter text DEFAULT NULL,
    query_code bit varying DEFAULT NULL, checked boolean DEFAULT false{tenant_argument}
)
RETURNS TABLE ({answer})
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 200
SET search_path FROM CURRENT
SET jit = off
SET plan_cache_mode = {plans}
SET enable_seqscan = {seqscan}
SET enable_indexscan = on
AS $body$
#variable_conflict use_column
DECLARE
    hashindex_trusted boolean := checked OR {require_trust};
    hashindex_query {ext}.vector := {checked_query};
    hashindex_n integer := CASE WHEN coalesce($2, {n}) > 0 THEN coalesce($2, {n}) ELSE hashindex._refuse('n', $2, '1 or more') END;
BEGIN
    IF NOT checked AND ({codes_are_hidden}) THEN
        RETURN QUERY SELECT {e_ids} FROM hashindex._exact_search({exact}, hashindex_query, hashindex_n, $4) e;
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
        hashindex_ids {key_type}[];
{rank}
    EXCEPTION WHEN undefined_table THEN
        -- A build may have dropped these codes meanwhile. The function is another one then.
        IF {codes_are_there} THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT {candidate_ids} FROM {candidates}($1, $2, $3, $4, $5{given_tenant}) c;
    END;
END
$body$
