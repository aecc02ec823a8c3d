-- name: indexes
-- The indexes, with what Python wants to know of each and of one of its sets; a clause WHERE may follow. {of} says which set.
-- A set that pgvector keeps has no table of codes, and one of vectors has no model.
SELECT i.name, coalesce(m.name, 'none') AS model, coalesce(m.version, 1) AS model_version,
       coalesce(m.method, 'none') AS method, coalesce(m.n_bits, 0) AS n_bits,
       coalesce(m.cuts, '{}') AS cuts, s.dimension, coalesce(m.id, 0) AS model_id, i.schema_name, i.table_name,
       s.column_name, i.key_columns, i.key_types, CASE pg_catalog.cardinality(i.key_types)
           WHEN 1 THEN ARRAY[hashindex._base_type(i.key_types[1])]
           ELSE hashindex._base_types(i) END AS base_types,
       i.metric, i.created_at, coalesce(s.access, 'none') AS access, coalesce(s.candidates, 0) AS candidates, s.effort,
       s.id AS set_id, s.state, s.state IN ('used', 'former') AND coalesce(s.encoded, true) AS encoded, s.trained_rows,
       i.tenant_column,
       CASE WHEN i.tenant_column IS NOT NULL THEN hashindex._tenant_type(i) END AS tenant_type,
       hashindex._options_of_set(i, s) AS options, hashindex._set_text(s) AS set,
       s.relation, hashindex._owner_remedy(i) AS remedy
FROM hashindex.index i JOIN hashindex.index_set s ON s.index_name = i.name AND {of}
LEFT JOIN hashindex.model m ON m.id = s.model_id

-- name: current
-- A condition: that a set is there, and its index is of the same table, column and key.
-- An index that was dropped and recreated has the same name, but another set.
EXISTS (
    SELECT FROM hashindex.index_set s JOIN hashindex.index i ON i.name = s.index_name
    WHERE s.id = {set_id} AND i.schema_name = {schema_name} AND i.table_name = {table_name}
      AND s.column_name = {column_name} AND i.key_columns OPERATOR(pg_catalog.=) {key_columns}::text[]
)

-- name: first_missing
-- The first keys of rows that have no code.
-- Only the keys are compared first, in the two indexes, so that no row is read if none is missing.
SELECT {key_text} FROM (
    SELECT {as_ids} FROM {table} b WHERE {has_no_code}
    ORDER BY {key} OFFSET 0
) c JOIN {table} b ON ({key}) = ({code_key})
WHERE b.{column} IS NOT NULL {fits}
ORDER BY {key} LIMIT {most}

-- name: lists_bytes
-- An expression of summary: bytes of the b-tree of the codes by landmark.
coalesce((
    SELECT sum(pg_relation_size(x.indexrelid)) FROM pg_catalog.pg_index x
    JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[0]
    WHERE x.indrelid = to_regclass({codes_name})::oid AND a.attname = 'landmark'
), 0)::bigint

-- name: landmark_bytes
-- An expression of summary: bytes of landmarks, of the b-tree of the codes by landmark, and of the
-- tables of an unfinished build.
(
    SELECT coalesce(sum(
        CASE WHEN o.id = to_regclass({codes_name})::oid THEN {lists}
        ELSE pg_total_relation_size(o.id) END
    ), 0)::bigint
    FROM hashindex.index i, hashindex._objects_of(i) o
    WHERE i.name = {name} AND o.kind = 'table' AND EXISTS (
        SELECT FROM hashindex.index_set s
        WHERE s.index_name = i.name AND s.state IN ('used', 'building') AND starts_with(o.name, pg_catalog.format('set_%s_', s.id))
    )
)

-- name: summary
-- Rows, codes and their bytes, and rows that wait for a code.
SELECT pg_catalog.count({column}) AS rows, {n_codes} AS codes,
       coalesce(pg_total_relation_size(to_regclass({codes_name})), 0) - {lists} AS code_bytes,
       {landmark_bytes} AS access_bytes,
       coalesce(sum(pg_catalog.pg_column_size({column})), 0)::bigint AS vector_bytes,
       ({waiting}) AS waiting
FROM {table}

-- name: lists
-- The numbers of landmarks and of codes in their lists. $1: how many rows the landmarks were trained on.
SELECT (SELECT count(*) FROM {landmarks}) AS landmarks,
       coalesce(sum(l.codes), 0)::bigint AS codes,
       coalesce(pg_catalog.max(l.codes) FILTER (WHERE l.landmark IS NOT NULL), 0) AS longest,
       coalesce(sum(l.codes) FILTER (WHERE l.landmark IS NULL), 0)::bigint AS unlisted,
       $1::bigint AS trained_rows
FROM (SELECT c.landmark, count(*) AS codes FROM {codes} c GROUP BY c.landmark) l
