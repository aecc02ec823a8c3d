-- name: column
-- The column that a table is distributed by, and whether a unique index has it. $1: the table.
SELECT d.name, EXISTS (
    SELECT FROM pg_catalog.pg_index x
    JOIN pg_catalog.generate_series(0, x.indnkeyatts - 1) n(n) ON true
    JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[n.n]
    WHERE x.indrelid = d.relation::oid AND x.indisunique AND a.attname::text = d.name
)
FROM (SELECT p.logicalrelid, column_to_column_name(p.logicalrelid, p.partkey)
      FROM pg_catalog.pg_dist_partition p) d(relation, name)
WHERE d.relation::oid = to_regclass($1)::oid

-- name: sizes
-- Bytes of a table in all shards: its rows, what is kept out of line, and its indexes. $1: the table.
SELECT citus_relation_size(t.relation),
       citus_table_size(t.relation) - citus_relation_size(t.relation),
       citus_total_relation_size(t.relation) - citus_table_size(t.relation)
FROM (SELECT $1::text::regclass) t(relation)
