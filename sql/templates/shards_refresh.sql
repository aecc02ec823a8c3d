-- Brings the codes of some keys up to date with a shard of the table, which is named. The statements of shards that are known are static,
-- so that a session plans them once; those of one that was split off since are made here.
CREATE OR REPLACE FUNCTION {refresh}(keys {key_type}[], rows text) RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = force_generic_plan
-- Otherwise a few thousand landmarks are read one by one, in several times the time of their index.
SET enable_seqscan = off
SET jit = off
AS $body$
DECLARE
    hashindex_effort text := coalesce(current_setting('hnsw.ef_search', true), '40');
    hashindex_set text := set_config('hnsw.ef_search', '16', true);
{if several}
    hashindex_gone {key_type};
{end several}
    hashindex_strict boolean := current_setting('transaction_isolation') IN ('repeatable read', 'serializable');
    hashindex_known text := CASE WHEN NOT hashindex_strict THEN $2 END;
    hashindex_code_table text;
    hashindex_landmark_table text;
    hashindex_codes text;
    hashindex_landmarks text;
BEGIN
    CASE hashindex_known{refresh_shards}
        ELSE
            FOR hashindex_code_table, hashindex_landmark_table IN SELECT u.codes, u.landmarks FROM unnest({code_tables}::text[], {landmark_tables}::text[]) u(codes, landmarks) LOOP
                -- A shard of rows and its shard of codes have the same range of hashes.
                SELECT shard_name(c.logicalrelid, c.shardid) INTO hashindex_codes
                FROM pg_dist_shard s JOIN pg_dist_shard c ON c.shardminvalue = s.shardminvalue
                WHERE s.logicalrelid = to_regclass({table_literal}) AND s.shardid = substring($2 FROM '_([0-9]+)"?$')::bigint
                  AND c.logicalrelid = to_regclass(hashindex_code_table);
                IF hashindex_codes IS NULL THEN
                    -- The table was renamed, or is no longer distributed. Let the write pass; pg-hashindex index check says what to do.
                    EXECUTE 'DELETE FROM ' || hashindex_code_table || ' c WHERE {among c.id $1}' USING $1;
                    CONTINUE;
                END IF;
                hashindex_landmarks := 'NULL::integer';
                IF hashindex_landmark_table IS NOT NULL THEN
                    SELECT {{(SELECT l.landmark FROM }} || shard_name(l.logicalrelid, l.shardid)
                        || {{{among_landmarks} ORDER BY l.centre OPERATOR({ext}.<->) {row_point} LIMIT 1)}} INTO hashindex_landmarks
                    FROM pg_dist_shard l WHERE l.logicalrelid = to_regclass(hashindex_landmark_table);
                END IF;
                IF hashindex_strict THEN
                    -- DELETE does not see a code that was committed after this transaction's snapshot. This INSERT conflicts with it and
                    -- raises the serialization failure that callers of these isolation levels expect.
                    EXECUTE 'INSERT INTO ' || hashindex_codes || {{ AS c ({each id}, code) SELECT DISTINCT {each t.id}, 0::bit({n_bits}) FROM unnest($1) t({each id})
                        ON CONFLICT ({each id}) DO UPDATE SET code = c.code}} USING $1;
                END IF;
                EXECUTE 'DELETE FROM ' || hashindex_codes || ' c WHERE {among c.id $1} AND NOT EXISTS (SELECT FROM ' || $2
                    || {{ b WHERE {same b.key c.id} AND b.{column} IS NOT NULL{fits})}} USING $1;
                EXECUTE 'INSERT INTO ' || hashindex_codes || {{ AS c ({each id}, landmark, code{filter_targets}) SELECT {each r.id}, }} || hashindex_landmarks
                    || {{, {row_code}{filter_sources} FROM (
                        SELECT {each b.key as id}{filter_reads}, b.{column}::{ext}.vector AS vector, {project}(b.{column}::{ext}.vector) AS projection
                        FROM {if several}(SELECT DISTINCT k.* FROM unnest($1) k) k CROSS JOIN LATERAL (SELECT {each b.read} FROM {end several}}} || $2 || {{ b
                        WHERE {if several}{same b.key k.id} OFFSET 0) b WHERE{else several}{among b.key $1} AND{end several} b.{column} IS NOT NULL{fits} OFFSET 0
                    ) r ON CONFLICT ({each id}) DO UPDATE SET landmark = excluded.landmark, code = excluded.code{filter_sets}}} USING $1;
            END LOOP;
    END CASE;
    hashindex_set := set_config('hnsw.ef_search', hashindex_effort, true);
END
$body$
