-- name: indexes
-- The indexes of a database, and their tables, for a comparison with those of a program.
SELECT i.name, i.schema_name AS "schema", i.table_name AS "table", i.column_name AS "column",
       CASE WHEN i.code_table IS NULL THEN hashindex._options_of_set(i, s)
           ELSE hashindex._options_of(i) END::text AS options,
       c.oid IS NOT NULL AS is_there, coalesce(pg_table_is_visible(c.oid), false) AS visible,
       CASE WHEN m.id IS NULL THEN 'none' ELSE pg_catalog.format('%s:%s', m.name, m.version) END
           AS model,
       coalesce(m.dimension, s.dimension) AS dimension, coalesce(m.metric, i.metric) AS model_metric
FROM hashindex.index i
LEFT JOIN hashindex.index_set s ON s.index_name = i.name AND s.state = 'used'
LEFT JOIN hashindex.model m ON m.id = coalesce(i.model_id, s.model_id)
LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = i.schema_name
LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = i.table_name
WHERE i.swap_of IS NULL ORDER BY i.name

-- name: waits
-- Whether the declared index is there and is kept by lists, for which its rows wait to be encoded.
SELECT NOT i.encoded FROM hashindex.index i JOIN hashindex.model m ON m.id = i.model_id
WHERE i.name = hashindex._declared_name({name}, to_regclass({table})) AND i.column_name = {column}
  AND coalesce({model} IN (m.name, pg_catalog.format('%s:%s', m.name, m.version)), true)
  AND to_regclass(pg_catalog.format('%I.%I', i.schema_name, i.table_name))::oid = to_regclass({table})::oid

-- name: held
-- Indexes of pgvector and columns of codes that belong to sets.
SELECT i.schema_name AS "schema", i.table_name AS "table", h.held, coalesce(pg_table_is_visible(hashindex._base_of(i)), false) AS visible
FROM hashindex.index_set s JOIN hashindex.index i ON i.name = s.index_name CROSS JOIN LATERAL unnest(ARRAY[s.relation, s.code_column]) h(held)
WHERE h.held IS NOT NULL
