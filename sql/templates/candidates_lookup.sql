-- Looks up parts (chunks) of the query's code, within a radius that grows until enough codes are found. Radius a in each chunk
-- finds every code up to the distance (a + 1) chunks - 1.
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
        -- Constants, which PostgreSQL computes once a session.
        hashindex_masks integer[] := hashindex._hamming_masks({chunk_width}, {chunk_radius});
        hashindex_sizes integer[] := {ball_sizes};
        -- hashindex_more is the number of chunks with the wider radius: all of them.
        hashindex_more integer := {chunks};
        hashindex_wide integer;
        hashindex_narrow integer := 0;
        hashindex_radius integer := -1;
        hashindex_rows double precision := reltuples FROM pg_class WHERE oid = to_regclass({code_table_literal});
        hashindex_ids {key_type}[];
    BEGIN
        IF $4 IS NOT NULL THEN
            RETURN QUERY EXECUTE format({filtered}, 'true', $4)
            USING hashindex_u1, hashindex_u2, hashindex_u3, hashindex_u4, hashindex_u5, hashindex_n;
            RETURN;
        END IF;
        FOREACH hashindex_wide IN ARRAY hashindex_sizes LOOP
            -- Stop when a scan costs less.
            EXIT WHEN NOT {lookup_pays};
            hashindex_radius := hashindex_radius + {chunks};
            hashindex_ids := ARRAY(
                SELECT c.id FROM {codes} c
                WHERE {lookup} AND bit_count(c.code # hashindex_code) <= hashindex_radius
                ORDER BY {distance}
            );
            IF cardinality(hashindex_ids) >= hashindex_pool THEN
                RETURN QUERY SELECT unnest(hashindex_ids[:hashindex_n]);
                RETURN;
            END IF;
            -- The next radius finds about ten times as many, which would still be too few.
            EXIT WHEN cardinality(hashindex_ids) < hashindex_pool / 100;
        END LOOP;
        RETURN QUERY SELECT c.id FROM {kept} c ORDER BY {distance} LIMIT hashindex_n;
    EXCEPTION WHEN undefined_table THEN
        -- A build may have dropped these codes since this statement began. The function is another one then.
        IF {codes_are_there} THEN
            RAISE;
        END IF;
        RETURN QUERY SELECT c.id FROM {candidates}($1, $2, $3, $4, $5) c;
    END;
END
$body$
