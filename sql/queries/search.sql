-- name: text_columns
-- The first columns of text that the role may read. $1: the table; $2: those to leave out; $3: how many.
SELECT a.attname FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = $1::regclass::oid AND a.attnum > 0 AND NOT a.attisdropped
  AND t.typcategory = 'S' AND a.attname <> ALL ($2::text[])
  AND pg_catalog.has_column_privilege(a.attrelid, a.attnum, 'SELECT')
ORDER BY a.attnum LIMIT $3
