-- name: is_sharded
-- Whether Citus keeps the rows of a table. $1: the table.
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_dist_partition p WHERE p.logicalrelid::oid = to_regclass($1)::oid
)

-- name: sizes
-- Bytes of a table in all shards: its rows, what is kept out of line, and its indexes. $1: the table.
SELECT citus_relation_size(t.relation),
       citus_table_size(t.relation) - citus_relation_size(t.relation),
       citus_total_relation_size(t.relation) - citus_table_size(t.relation)
FROM (SELECT $1::text::regclass) t(relation)
