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
    hashindex_set text := set_config('hnsw.ef_search', '16', true);
{if several}
    hashindex_gone {key_type};
{end several}
BEGIN
{refresh_codes}
    hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
END
$body$
