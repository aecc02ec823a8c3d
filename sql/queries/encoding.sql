-- name: rows
-- The next rows without a code.
-- $1 is a key, $2 the most rows. Both sides of the anti-join are bounded, so that no batch reads the
-- codes of earlier ones.
SELECT {key_text}, b.{column}, NULL FROM {table} b
WHERE ({key}) {comparison} ({start}) AND b.{column} IS NOT NULL {fits}
  AND {has_no_code_from_start}
ORDER BY {key} LIMIT $2

-- name: pages_of_table
-- Pages of a table. Counting all missing rows takes as long as encoding a few percent of them.
SELECT pg_relation_size({table_name}::regclass) / current_setting('block_size')::integer

-- name: write
-- Writes the codes of a batch, but for rows that are gone or locked.
-- $1 and $2 are the keys and codes of a batch; a cast of the second to bit[] would cut each
-- code down to one bit. The index cannot be dropped before the statement ends: its lock on the table of codes is taken before its snapshot. unnest of several arrays is PostgreSQL's own under
-- any search_path; pg_catalog.unnest takes only one.
WITH present AS (
    SELECT {as_ids}, s.code{tenant_value}
    FROM unnest($1::text[], $2) s(id, code)
    JOIN {table} b ON ({key}) = ({given_key})
    WHERE b.{column} IS NOT NULL {fits} AND {current}
    FOR SHARE OF b SKIP LOCKED
)
INSERT INTO {codes} ({ids}, code{tenant_target})
SELECT * FROM present p
ON CONFLICT ({ids}) DO NOTHING

-- name: prune
-- Deletes codes of rows that went while triggers were off. A role that
-- does not see every row must not do this. The keys are put into an array, since a plain NOT EXISTS
-- would read both tables instead of their two indexes. A row of that key may come meanwhile; its
-- code then has another xmin, and stays.
WITH gone AS MATERIALIZED (
    SELECT {code_key}, c.xmin AS version FROM {codes} c WHERE ({code_key}) IN (
        SELECT {ids} FROM pg_catalog.unnest(ARRAY(
            SELECT {whole_key} FROM {codes} c
            WHERE NOT row_security_active({table_name}) AND {current}
              AND NOT EXISTS (SELECT FROM {table} b WHERE ({key}) = ({code_key}))
        )) k({ids})
    )
)
DELETE FROM {codes} c USING gone WHERE ({code_key}) = ({gone_key}) AND c.xmin = gone.version

-- name: encoded
-- Records that all rows of a set have had their codes, so that searches use them. A role that does not see every row cannot have encoded
-- all of them. $1: the set.
UPDATE hashindex.index_set x SET encoded = true FROM hashindex.index i
WHERE x.id = $1 AND NOT x.encoded AND i.name = x.index_name
  AND NOT pg_catalog.row_security_active(pg_catalog.format('%I.%I', i.schema_name, i.table_name))
