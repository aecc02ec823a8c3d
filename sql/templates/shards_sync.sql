-- Updates the codes of written keys, in the shard of codes beside the shard of rows that was written to. The transition tables
-- only tell which keys were written; the rows are read from the shard as they are now.
CREATE OR REPLACE FUNCTION {sync}() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
-- Otherwise Citus leaves shards out of pg_class, in sessions of a worker's clients.
SET citus.override_table_visibility = off
AS $body$
DECLARE
    hashindex_touched {key_type}[];
    hashindex_rows text := format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME);
BEGIN
    -- On a node that was added PUBLIC may execute this function until pg-hashindex index distribute is run, and where a shard is not,
    -- anybody may give its name to a table. So the table must be the indexed one or its shard on this node, and of the same owner.
    IF NOT EXISTS (
        SELECT FROM pg_class w LEFT JOIN pg_class b ON b.oid = to_regclass({table_literal})
        WHERE w.oid = TG_RELID AND CASE WHEN b.oid IS NULL THEN
            -- The table was renamed. Its owner has the right to execute this function by name.
            w.relowner IN (SELECT a.grantee FROM pg_proc f, aclexplode(f.proacl) a WHERE f.oid = '{sync}()'::regprocedure)
        ELSE w.relowner = b.relowner AND (w.oid = b.oid OR w.relnamespace = b.relnamespace AND EXISTS (
            SELECT FROM pg_dist_shard s JOIN pg_dist_placement p ON p.shardid = s.shardid JOIN pg_dist_local_group n ON n.groupid = p.groupid
            WHERE s.shardid = substring(TG_TABLE_NAME FROM '_([0-9]{1,18})$')::bigint AND s.logicalrelid = b.oid
              AND shard_name(s.logicalrelid, s.shardid) IN (quote_ident(TG_TABLE_NAME), hashindex_rows)
        )) END
    ) THEN
        RETURN NULL;
    END IF;
    -- A shard cannot tell searches on other nodes that it lacks codes, so the write is refused.
    PERFORM {require_trust};
    IF TG_OP = 'TRUNCATE' THEN
        -- Citus fires TRUNCATE triggers on the node that got the statement, and none on shards.
        TRUNCATE {all_code_tables};
        RETURN NULL;
    ELSIF TG_OP = 'DELETE' THEN
        hashindex_touched := ARRAY(SELECT {row o.key} FROM old_rows o);
    ELSIF TG_OP = 'INSERT' THEN
        hashindex_touched := ARRAY(SELECT {row n.key} FROM new_rows n);
    ELSE
        -- A row cannot leave its shard; by a key of several columns it may get another key in it. A full join is never a nested loop: the plan is kept, and the next
        -- statement may write many rows.
        hashindex_touched := ARRAY(
            SELECT {changed_key} FROM old_rows o FULL JOIN new_rows n ON {same n.key o.key} WHERE {is_changed}
        );
    END IF;
    IF cardinality(hashindex_touched) = 0 THEN
        RETURN NULL;
    END IF;
    PERFORM {refresh}(hashindex_touched, hashindex_rows);
    RETURN NULL;
END
$body$
