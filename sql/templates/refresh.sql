-- Brings the codes of some keys up to date with the table. A row without a vector gets no code.
-- Plans are generic and look up by key: a plan made for each call would read the model each time.
CREATE OR REPLACE FUNCTION {refresh}(keys {key_type}[]) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET jit = off
AS $body$
DECLARE
    hashindex_effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
    -- With 16, 97 rows in 100 get their nearest landmark (a build: 91).
    hashindex_set text := set_config('hnsw.ef_search', '16', true);{gone_variable}
BEGIN
    {delete_gone}
    INSERT INTO {code_table} AS c ({ids}, landmark, code{number_targets}{filter_targets})
    SELECT {r_ids}, {row_landmark}, {row_code}{number_values}{filter_sources}
    FROM (
        SELECT raw.*, {row_projection} AS projection
        FROM (
            SELECT {row_ids}{filter_reads}, CASE WHEN {ext}.vector_dims(b.{column}) = {dimension} THEN b.{column}::{ext}.vector({dimension})
                ELSE hashindex._refuse_vector(b.{column}::{ext}.vector, {dimension}) END AS vector
            FROM {rows_before}{table}{rows_after} AND b.{column} IS NOT NULL OFFSET 0
        ) raw OFFSET 0
    ) r
    ON CONFLICT ({ids}) DO UPDATE SET landmark = excluded.landmark, code = excluded.code{number_sets}{filter_sets};
    hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
END
$body$
