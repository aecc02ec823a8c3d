-- Returns the rows that are nearest to a query among those of some shards on this node, all for which the shard of this number stands, and
-- then a row without a key, whose distance is -infinity where the lists held enough codes. A caller that misses that row knows that shards
-- are elsewhere; an error would need a savepoint on each node, which takes longer than the search.
CREATE OR REPLACE FUNCTION {nearest}(
    number integer, first integer[], lists integer[], codes bit varying[], query {ext}.vector, n integer, k integer{if tenant}, tenant {tenant_type}{end tenant}
)
RETURNS TABLE (id {key_type}, distance double precision)
LANGUAGE plpgsql STABLE PARALLEL UNSAFE ROWS 10
SET search_path = pg_catalog, pg_temp
SET jit = off
SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off
SET enable_indexscan = {if several}on{else several}off{end several}
AS $body$
#variable_conflict use_column
DECLARE
    hashindex_point {vector_type} := query;
    u1 "bit" := codes[1];
    u2 "bit" := codes[2];
    u3 "bit" := codes[3];
    u4 "bit" := codes[4];
    u5 "bit" := codes[5];
    hashindex_ids {key_type}[];
    hashindex_short boolean := false;
BEGIN
    IF $1 = ANY ($2) THEN
        FOR hashindex_shard IN 1..cardinality($2) LOOP
            CONTINUE WHEN $2[hashindex_shard] <> $1;
            CASE hashindex_shard{nearest_in_shards}
            END CASE;
        END LOOP;
        -- Many tenants have fewer rows than candidates.
        RETURN QUERY SELECT NULL::{key_type}, CASE WHEN {if tenant}false{else tenant}hashindex_short{end tenant} THEN '-1e300' ELSE '-infinity' END::double precision;
    END IF;
EXCEPTION WHEN undefined_table THEN
    -- A shard was moved, or a build has dropped these codes, since the search began.
    NULL;
END
$body$
