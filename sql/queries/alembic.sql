-- name: indexes
-- The indexes of a database, and their tables, for a comparison with those of a program.
SELECT i.name, i.schema_name AS "schema", i.table_name AS "table", i.column_name AS "column",
       hashindex._options_of_set(i, s)::text AS options,
       c.oid IS NOT NULL AS is_there, coalesce(pg_table_is_visible(c.oid), false) AS visible,
       CASE WHEN m.id IS NULL THEN 'none' ELSE pg_catalog.format('%s:%s', m.name, m.version) END
           AS model,
       s.dimension, coalesce(m.metric, i.metric) AS model_metric
FROM hashindex.index i
LEFT JOIN hashindex.index_set s ON s.id = (
    SELECT x.id FROM hashindex.index_set x WHERE x.index_name = i.name ORDER BY x.state = 'used' DESC, x.id LIMIT 1
)
LEFT JOIN hashindex.model m ON m.id = s.model_id
LEFT JOIN pg_catalog.pg_namespace n ON n.nspname = i.schema_name
LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = i.table_name
ORDER BY i.name

-- name: declared
-- Name of the index that is declared under a name on a table. That of a table that is gone is found by its place: another's may have the bare name.
SELECT coalesce(
    hashindex._declared_name({name}, to_regclass({table})),
    (SELECT i.name FROM hashindex.index i
     WHERE i.table_name = {bare} AND i.schema_name = coalesce({schema}, pg_catalog.current_schema())
       AND i.name IN ({name}, i.schema_name || '_' || {name}, left({name}, 31) || '_' || left(md5(i.schema_name), 8))
     ORDER BY i.name <> {name} LIMIT 1),
    {name})

-- name: waits
-- Whether the declared index is there and lists are to be built for it, for which its rows wait to be encoded.
SELECT s.state = 'building' OR NOT s.encoded FROM hashindex.index i JOIN hashindex.index_set s ON s.index_name = i.name AND s.encoded IS NOT NULL
JOIN hashindex.model m ON m.id = s.model_id
WHERE s.state IN ('building', 'used') AND i.name = hashindex._declared_name({name}, to_regclass({table})) AND s.column_name = {column}
  AND coalesce({model} IN (m.name, pg_catalog.format('%s:%s', m.name, m.version)), true)
  AND to_regclass(pg_catalog.format('%I.%I', i.schema_name, i.table_name))::oid = to_regclass({table})::oid
ORDER BY s.state LIMIT 1

-- name: held
-- Indexes of pgvector and columns of codes that belong to sets.
SELECT i.schema_name AS "schema", i.table_name AS "table", h.held, coalesce(pg_table_is_visible(hashindex._base_of(i)), false) AS visible
FROM hashindex.index_set s JOIN hashindex.index i ON i.name = s.index_name CROSS JOIN LATERAL unnest(ARRAY[s.relation, s.code_column]) h(held)
WHERE h.held IS NOT NULL
