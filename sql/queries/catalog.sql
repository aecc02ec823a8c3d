-- name: indexes
-- The indexes, with what Python wants to know of each; a clause WHERE may follow.
-- An index that pgvector keeps has no table of codes, and one of vectors has no model.
SELECT i.name, coalesce(m.name, 'none') AS model, coalesce(m.version, 1) AS model_version,
       coalesce(m.method, 'none') AS method, coalesce(m.n_bits, 0) AS n_bits,
       coalesce(m.cuts, '{}') AS cuts, coalesce(m.dimension, s.dimension) AS dimension,
       coalesce(m.id, 0) AS model_id, i.schema_name, i.table_name, i.column_name, i.key_columns,
       i.key_types, CASE pg_catalog.cardinality(i.key_types)
           WHEN 1 THEN ARRAY[hashindex._base_type(i.key_types[1])]
           ELSE hashindex._base_types(i) END AS base_types,
       i.metric, coalesce(i.code_table, '') AS code_table, i.created_at,
       coalesce(i.access, s.access, 'none') AS access, i.building,
       coalesce(i.candidates, s.candidates, 0) AS candidates, coalesce(i.effort, s.effort) AS effort,
       coalesce(i.storage, '') AS storage, coalesce(i.triggers, '') AS triggers,
       i.swap_of, i.swap_state, coalesce(i.encoded, s.state = 'used', false) AS encoded,
       i.tenant_column,
       CASE WHEN i.tenant_column IS NOT NULL THEN hashindex._tenant_type(i) END AS tenant_type,
       CASE WHEN i.code_table IS NULL THEN hashindex._options_of_set(i, s)
           ELSE hashindex._options_of(i) END AS options,
       CASE WHEN i.code_table IS NULL THEN hashindex._set_text(s) END AS set,
       s.relation, hashindex._owner_remedy(i) AS remedy
FROM hashindex.index i LEFT JOIN hashindex.index_set s ON s.id = (
    SELECT x.id FROM hashindex.index_set x WHERE x.index_name = i.name
    ORDER BY x.state = 'used' DESC, x.id LIMIT 1
) LEFT JOIN hashindex.model m ON m.id = coalesce(i.model_id, s.model_id)

-- name: current
-- A condition: that an index has the codes it had when its row was read.
-- An index that was dropped and recreated has the same names, but other codes. Codes that a swap
-- replaced are still the same ones, under another name.
EXISTS (
    SELECT FROM hashindex.index i
    WHERE i.storage = {storage} AND i.model_id = {model_id} AND i.schema_name = {schema_name}
      AND i.table_name = {table_name} AND i.column_name = {column_name}
      AND i.key_columns OPERATOR(pg_catalog.=) {key_columns}::text[]
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
    WHERE x.indrelid = {codes_name}::regclass::oid AND a.attname = 'landmark'
), 0)::bigint

-- name: landmark_bytes
-- An expression of summary: bytes of landmarks, of the b-tree of the codes by landmark, and of the
-- tables of an unfinished build.
(
    SELECT coalesce(sum(
        CASE WHEN o.id = {codes_name}::regclass::oid THEN {lists}
        ELSE pg_total_relation_size(o.id) END
    ), 0)::bigint
    FROM hashindex.index i, hashindex._objects_of(i) o
    WHERE i.name = {name} AND o.kind = 'table'
)

-- name: summary
-- Rows, codes and their bytes, and rows that wait for a code.
SELECT pg_catalog.count({column}) AS rows, (SELECT count(*) FROM {codes}) AS codes,
       pg_total_relation_size({codes_name}::regclass) - {lists} AS code_bytes,
       {landmarks} AS access_bytes,
       coalesce(sum(pg_catalog.pg_column_size({column})), 0)::bigint AS vector_bytes,
       ({waiting}) AS waiting
FROM {table}

-- name: lists
-- The numbers of landmarks and of codes in their lists. $1: the index.
SELECT (SELECT count(*) FROM {landmarks}) AS landmarks,
       coalesce(sum(l.codes), 0)::bigint AS codes,
       coalesce(pg_catalog.max(l.codes) FILTER (WHERE l.landmark IS NOT NULL), 0) AS longest,
       coalesce(sum(l.codes) FILTER (WHERE l.landmark IS NULL), 0)::bigint AS unlisted,
       (SELECT i.trained_rows FROM hashindex.index i WHERE i.name = $1) AS trained_rows
FROM (SELECT c.landmark, count(*) AS codes FROM {codes} c GROUP BY c.landmark) l
