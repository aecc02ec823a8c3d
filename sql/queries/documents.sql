-- name: columns
-- The columns of a table, with types and with the expressions of generated ones. $1: the table.
SELECT a.attname, s.nspname, c.relname, n.nspname, t.typname, a.atttypmod,
       CASE a.attgenerated WHEN 's' THEN pg_catalog.pg_get_expr(d.adbin, d.adrelid) END
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace s ON s.oid = c.relnamespace
WHERE a.attrelid = to_regclass($1)::oid AND a.attnum > 0 AND NOT a.attisdropped

-- name: write
-- Writes documents in place of those with the same ids. $1 to $4: ids, texts, metadata and vectors.
-- Sorted by id as Python sorts, so that two writers of the same documents do not deadlock.
INSERT INTO {table} (id, content, metadata, embedding)
SELECT u.id, u.content, u.metadata::jsonb, u.embedding
FROM unnest($1::text[], $2::text[], $3::text[], $4)
    u(id, content, metadata, embedding)
ORDER BY u.id COLLATE "C"
ON CONFLICT (id) DO UPDATE
SET content = excluded.content, metadata = excluded.metadata, embedding = excluded.embedding

-- name: by_words
-- The documents that have the words of a text, best first. $1: the words; $2: how many.
-- Words are ranked as by hashindex.hybrid, and found by the same index USING gin.
SELECT w.id, w.rank FROM (
    SELECT id, pg_catalog.ts_rank_cd({document}, $1::tsquery, 1) AS rank FROM {table}
    WHERE {document} OPERATOR(pg_catalog.@@) $1::tsquery AND {filter}
) w
ORDER BY w.rank DESC, w.id LIMIT $2
