-- name: indexes
-- The indexes of a database, and their tables, for a comparison with those of a program.
SELECT i.name, i.schema_name AS "schema", i.table_name AS "table", i.column_name AS "column",
       hashindex._options_of(i)::text AS options,
       c.oid IS NOT NULL AS is_there, coalesce(pg_table_is_visible(c.oid), false) AS visible,
       m.name AS model, m.version, m.dimension,
       m.metric AS model_metric, (hashindex._rankings(m))[1] AS model_ranking
FROM hashindex.index i JOIN hashindex.model m ON m.id = i.model_id
LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = i.schema_name
LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = i.table_name
WHERE i.swap_of IS NULL ORDER BY i.name
