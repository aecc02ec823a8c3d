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
{if several}
    -- A plan that was made while the tables were small stays in use, and must look up keys even so: OFFSET 0 leaves no other. Nor may a join
    -- take the key for unique: a snapshot may show a row that was deleted since, and another one with its key.
    FOR hashindex_gone IN SELECT k.* FROM unnest($1) k WHERE NOT EXISTS (
        SELECT FROM ONLY {table} b WHERE {same b.key k.id} AND b.{column} IS NOT NULL{fits} OFFSET 0
    ) LOOP
        DELETE FROM {code_table} c WHERE {same c.id hashindex_gone.id};
    END LOOP;
{else several}
    DELETE FROM {code_table} c WHERE {among c.id $1} AND NOT EXISTS (
        SELECT FROM ONLY {table} b WHERE {same b.key c.id} AND b.{column} IS NOT NULL{fits}
    );
{end several}
    INSERT INTO {code_table} AS c ({each id}, landmark, code{if tenant}, tenant{end tenant})
    SELECT {each r.id}, {row_landmark}, {row_code}{if tenant}, r.tenant{end tenant}
    FROM (
        SELECT raw.*, {row_projection} AS projection
        FROM (
            SELECT {each b.key as id}{if tenant}, b.{tenant} AS tenant{end tenant}, CASE WHEN {ext}.vector_dims(b.{column}) = {dimension} THEN b.{column}::{ext}.vector({dimension})
                ELSE hashindex._refuse_vector(b.{column}::{ext}.vector, {dimension}) END AS vector
            FROM {if several}(SELECT DISTINCT k.* FROM unnest($1) k) k CROSS JOIN LATERAL (
                SELECT {each b.read} FROM ONLY {table} b WHERE {same b.key k.id} OFFSET 0
            ) b WHERE{else several}ONLY {table} b WHERE {among b.key $1} AND{end several} b.{column} IS NOT NULL{fits} OFFSET 0
        ) raw OFFSET 0
    ) r
    ON CONFLICT ({each id}) DO UPDATE SET landmark = excluded.landmark, code = excluded.code{if tenant}, tenant = excluded.tenant{end tenant};
    hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
END
$body$
