-- name: column
-- A table, whether it has partitions, a column with its type, and the primary key. $1: the table;
-- $2: the column.
SELECT c.oid::regclass::text, c.relkind = 'p', quote_ident(a.attname), t.typname, a.atttypmod,
       coalesce((
           SELECT string_agg(quote_ident(k.attname), ', ' ORDER BY array_position(i.indkey, k.attnum))
           FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute k
               ON k.attrelid = i.indrelid AND k.attnum = ANY (i.indkey)
           WHERE i.indrelid = c.oid AND i.indisprimary
       ), '*')
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE c.oid = $1::text::regclass AND a.attname = $2 AND NOT a.attisdropped
