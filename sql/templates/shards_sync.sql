-- Updates the codes of written keys, in the shard of codes beside the shard of rows that was written to. The transition tables
-- only tell which keys were written; the rows are read from the shard as they are now.
CREATE OR REPLACE FUNCTION {sync}() RETURNS trigger
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET row_security = off
-- Otherwise Citus leaves shards out of pg_class, in sessions of a worker's clients.
SET citus.override_table_visibility = off
-- Otherwise a few thousand landmarks are read one by one, in several times the time of their index.
SET enable_seqscan = off
AS $body$
DECLARE
    hashindex_touched {key_type}[];
    hashindex_rows text := format('%I.%I', TG_TABLE_SCHEMA, TG_TABLE_NAME);
    hashindex_code_table text;
    hashindex_landmark_table text;
    hashindex_codes text;
    hashindex_landmarks text;
    hashindex_effort text;
    hashindex_set text;
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
    ELSIF TG_OP = 'TRUNCATE' THEN
        -- Citus fires TRUNCATE triggers on the node that got the statement, and none on shards.
        TRUNCATE {all_code_tables};
        RETURN NULL;
    ELSIF TG_OP = 'DELETE' THEN
        hashindex_touched := ARRAY(SELECT {old_key} FROM old_rows o);
    ELSIF TG_OP = 'INSERT' THEN
        hashindex_touched := ARRAY(SELECT {new_key} FROM new_rows n);
    ELSE
        -- A row cannot leave its shard; by a key of several columns it may get another key in it. A full join is never a nested loop: the plan is kept, and the next
        -- statement may write many rows.
        hashindex_touched := ARRAY(
            SELECT {changed_key} FROM old_rows o FULL JOIN new_rows n ON {same_rows} WHERE {is_changed}
        );
    END IF;
    IF cardinality(hashindex_touched) = 0 THEN
        RETURN NULL;
    END IF;
    hashindex_effort := coalesce(current_setting('hnsw.ef_search', true), '40');
    hashindex_set := set_config('hnsw.ef_search', '16', true);
    FOR hashindex_code_table, hashindex_landmark_table IN SELECT u.codes, u.landmarks FROM unnest({code_tables}::text[], {landmark_tables}::text[]) u(codes, landmarks) LOOP
        -- A shard of rows and its shard of codes have the same range of hashes.
        SELECT shard_name(c.logicalrelid, c.shardid) INTO hashindex_codes
        FROM pg_dist_shard s JOIN pg_dist_shard c ON c.shardminvalue = s.shardminvalue
        WHERE s.logicalrelid = to_regclass({table_literal}) AND s.shardid = substring(TG_TABLE_NAME FROM '_([0-9]+)$')::bigint
          AND c.logicalrelid = to_regclass(hashindex_code_table);
        IF hashindex_codes IS NULL THEN
            -- The table was renamed, or is no longer distributed. Let the write pass; pg-hashindex index check says what to do.
            EXECUTE 'DELETE FROM ' || hashindex_code_table || ' c WHERE {code_among}($1){among_end}' USING hashindex_touched;
            CONTINUE;
        END IF;
        hashindex_landmarks := 'NULL::integer';
        IF hashindex_landmark_table IS NOT NULL THEN
            SELECT {{(SELECT l.landmark FROM }} || shard_name(l.logicalrelid, l.shardid)
                || {{{among_landmarks} ORDER BY l.centre OPERATOR({ext}.<->) {row_point} LIMIT 1)}} INTO hashindex_landmarks
            FROM pg_dist_shard l WHERE l.logicalrelid = to_regclass(hashindex_landmark_table);
        END IF;
        IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
            -- DELETE does not see a code that was committed after this transaction's snapshot. This INSERT conflicts with it and raises
            -- the serialization failure that callers of these isolation levels expect.
            EXECUTE 'INSERT INTO ' || hashindex_codes || {{ AS c ({ids}, code{number_targets}) SELECT DISTINCT {t_ids}, 0::bit({n_bits}){number_zeros} FROM unnest($1) t({ids})
                ON CONFLICT ({ids}) DO UPDATE SET code = c.code}} USING hashindex_touched;
        END IF;
        EXECUTE 'DELETE FROM ' || hashindex_codes || ' c WHERE {code_among}($1){among_end} AND NOT EXISTS (SELECT FROM ' || hashindex_rows
            || {{ b WHERE {same_key} AND b.{column} IS NOT NULL)}} USING hashindex_touched;
        EXECUTE 'INSERT INTO ' || hashindex_codes || {{ AS c ({ids}, landmark, code{number_targets}{filter_targets}) SELECT {r_ids}, }} || hashindex_landmarks
            || {{, {row_code}{number_values}{filter_sources} FROM (
                SELECT {row_ids}{filter_reads}, b.{column}::{ext}.vector AS vector, {project}(b.{column}::{ext}.vector) AS projection
                FROM {rows_before}}} || hashindex_rows || {{{rows_after} AND b.{column} IS NOT NULL OFFSET 0
            ) r ON CONFLICT ({ids}) DO UPDATE SET landmark = excluded.landmark, code = excluded.code{number_sets}{filter_sets}}} USING hashindex_touched;
    END LOOP;
    hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
    RETURN NULL;
END
$body$
