-- Finds every row whose code is within a Hamming radius of the query's. With radius a chunks + b, such a code has one of its
-- first b + 1 chunks within a of the query's, or another within a - 1.
CREATE OR REPLACE FUNCTION {within}(query anycompatible, radius integer, query_code bit varying DEFAULT NULL)
RETURNS TABLE (id {key_type}, distance integer)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 100
SET search_path FROM CURRENT
SET jit = off
AS $body$
#variable_conflict use_column
DECLARE
    hashindex_query {ext}.vector := CASE WHEN {ext}.vector_dims($1::{ext}.vector) = {dimension} THEN $1::{ext}.vector({dimension}) ELSE hashindex._refuse_vector($1::{ext}.vector, {dimension}) END;
    hashindex_radius integer := CASE WHEN $2 BETWEEN 0 AND {n_bits} THEN $2 ELSE hashindex._refuse('radius', $2, '0 to {n_bits}, the bits of a code') END;
    hashindex_projection {ext}.vector := {projection};
    hashindex_code bit({n_bits}) := {code};
    -- Constants, which PostgreSQL computes once a session.
    hashindex_masks integer[] := hashindex._hamming_masks({chunk_width}, {chunk_radius});
    hashindex_sizes integer[] := {ball_sizes};
    hashindex_more integer := hashindex_radius % {chunks} + 1;
    hashindex_wide integer := hashindex_sizes[hashindex_radius / {chunks} + 1];
    hashindex_narrow integer := coalesce(hashindex_sizes[hashindex_radius / {chunks}], 0);
    hashindex_rows double precision := reltuples FROM pg_class WHERE oid = to_regclass({code_table_literal});
BEGIN
    PERFORM hashindex._check_column_dimension({table_literal}, {column_literal}, {dimension});
    PERFORM hashindex._require_codes({index}, {table_literal}, {codes_are_seen}, {codes_are_kept});
    IF {lookup_pays} THEN
        RETURN QUERY SELECT c.id, bit_count(c.code # hashindex_code)::integer AS distance
        FROM {codes} c
        WHERE {lookup} AND bit_count(c.code # hashindex_code) <= hashindex_radius{row_is_visible}
        ORDER BY distance, id;
    ELSE
        RETURN QUERY SELECT c.id, bit_count(c.code # hashindex_code)::integer AS distance
        FROM {codes} c
        WHERE bit_count(c.code # hashindex_code) <= hashindex_radius{row_is_visible}
        ORDER BY distance, id;
    END IF;
EXCEPTION WHEN undefined_table THEN
    -- A build may have dropped these codes since this statement began.
    PERFORM hashindex._require_codes({index}, {table_literal}, {codes_are_there}, true);
    RAISE;
END
$body$
