-- name: graphs
-- pgvector's HNSW indexes over the codes of a model's function, and the models. $1: the table.
-- An index depends on the functions it calls.
SELECT c.relname::text, i.indisvalid, m.metric,
       pg_catalog.format('hashindex.%I', p.proname), a.atttypmod
FROM pg_catalog.pg_index i
JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid
JOIN pg_catalog.pg_am h ON h.oid = c.relam AND h.amname = 'hnsw'
JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[0] AND o.opcname = 'bit_hamming_ops'
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = 1
JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_class'::regclass
    AND d.objid = c.oid AND d.refclassid = 'pg_catalog.pg_proc'::regclass
JOIN pg_catalog.pg_proc p ON p.oid = d.refobjid
    AND p.pronamespace = 'hashindex'::regnamespace
JOIN pg_catalog.pg_type t ON t.oid = p.proargtypes[0]
LEFT JOIN hashindex.object f
    ON f.kind = 'function' AND f.name = pg_catalog.format('%s(%s)', p.proname, t.typname)
LEFT JOIN hashindex.model m ON m.id = f.model_id
WHERE i.indrelid = to_regclass($1)::oid AND i.indnatts = 1 AND i.indpred IS NULL
    AND pg_catalog.pg_get_expr(i.indexprs, i.indrelid) OPERATOR(pg_catalog.=)
        pg_catalog.format('(hashindex.%I(embedding))::bit(%s)', p.proname, a.atttypmod)
ORDER BY c.relname

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
