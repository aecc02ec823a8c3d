-- Finds every row whose code is within a Hamming radius of the query's.
CREATE OR REPLACE FUNCTION {within}(query anycompatible, radius integer{if tenant}, tenant {tenant_type} DEFAULT NULL, all_tenants boolean DEFAULT false{end tenant})
RETURNS TABLE ({answer}, distance integer)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 100
SET search_path FROM CURRENT
SET jit = off
AS $body$
#variable_conflict use_column
DECLARE
    hashindex_query {ext}.vector := {checked_query};
    hashindex_radius integer := CASE WHEN $2 BETWEEN 0 AND {n_bits} THEN $2 ELSE hashindex._refuse('radius', $2, '0 to {n_bits}, the bits of a code') END;
    hashindex_projection {ext}.vector := {projection};
    hashindex_code bit({n_bits}) := {code};
    hashindex_locked boolean;
BEGIN
    PERFORM hashindex._check_plain({table_literal}, {column_literal});
    PERFORM hashindex._check_vector_column({table_literal}, {column_literal}, {dimension}, false);
    -- The table is locked before the codes, as by TRUNCATE and drops.
    hashindex_locked := EXISTS (SELECT FROM {table} WHERE false);
    PERFORM hashindex._require_codes({index}, {table_literal}, {codes_are_seen} AND {codes_are_there}, {codes_are_kept}, {code_table_literal});
{if tenant}
    PERFORM hashindex._require_tenant({used_index}, {table_literal}, {tenant_literal}, $3::text, $4);
    IF $3 IS NOT NULL THEN
        RETURN QUERY SELECT {each c.id}, bit_count(c.code # hashindex_code)::integer AS distance
        FROM {code_table} c
        WHERE c.tenant = $3 AND bit_count(c.code # hashindex_code) <= hashindex_radius
          AND EXISTS (SELECT FROM {table} b WHERE {same b.key c.id} OFFSET 0)
        ORDER BY distance, {each id};
        RETURN;
    END IF;
{end tenant}
    RETURN QUERY SELECT {each c.id}, bit_count(c.code # hashindex_code)::integer AS distance
    FROM {code_table} c
    WHERE bit_count(c.code # hashindex_code) <= hashindex_radius
      -- Few keys are looked up one by one; the planner would expect a third of the table, and join.
      AND EXISTS (SELECT FROM {table} b WHERE {same b.key c.id} OFFSET 0)
    ORDER BY distance, {each id};
EXCEPTION WHEN undefined_table OR undefined_column THEN
    PERFORM hashindex._refuse_renamed(hashindex.find_index({index}));
    -- A build may have dropped these codes since this statement began.
    PERFORM hashindex._require_codes({index}, {table_literal}, {codes_are_there}, true, {code_table_literal});
    RAISE;
END
$body$
